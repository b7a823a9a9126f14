"""The conversations of the chat page and of MCP clients with the model."""

from __future__ import annotations

from dataclasses import dataclass

from harnesses.core.services.peers import Origin
from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.status import web_address
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from llm.client.client import OnText
from llm.messages.message import Image
from llm.skills.registry import TEACH
from storage.chat_log.event import Identity, Scope
from storage.memory.conversations import Message, Turn

_VISITOR = "visitor"  # tokens and cookies identify no person


@dataclass(frozen=True, slots=True)
class ChatExchange:
    """A question and its answer, in the model's Markdown."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class VisitorQuestion:
    """A question of a visitor at a network `address`, whose tools are confined to `scope`."""

    text: str
    scope: Scope
    address: str
    image: Image | None = None


class ChatService:
    """Turns of `tendril` in named conversations, with tools over its log."""

    def __init__(self, tendril: Tendril) -> None:
        self._tendril = tendril

    async def ask(
        self, conversation: str, question: VisitorQuestion, on_text: OnText
    ) -> TurnResult:
        """Answer a question, passing each piece of the answer to `on_text` as it is generated."""
        tendril = self._tendril
        door = Door(
            log=tendril.log.tools_within(question.scope),
            address=lambda: web_address(tendril.config, ()),
            room=conversation,
            who=_VISITOR,
        )
        return await tendril.turn(
            TurnRequest(
                conversation=conversation,
                who=_VISITOR,
                text=question.text,
                budget_owner=question.address,
                image=question.image,
                tools=tendril.tools_for(door),
                rights=lambda: {TEACH},
                on_text=on_text,
                private=True,
                origin=Origin(tendril.name, Identity(_VISITOR), question.scope),
            )
        )

    async def history(self, conversation: str) -> list[ChatExchange]:
        """Return the questions and answers of a conversation, oldest first."""
        turns = await self._tendril.conversations.turns(conversation)
        return [_exchange(turn) for turn in turns]

    async def forget(self, conversation: str) -> None:
        """Delete a conversation, as `Tendril.clear` does."""
        await self._tendril.clear(conversation)


def _exchange(turn: Turn) -> ChatExchange:
    """Return the question and the answer of a turn, without the tool calls between them."""
    return ChatExchange(_content(turn.messages[0]), _content(turn.messages[-1]))


def _content(message: Message) -> str:
    return str(message.get("content") or "")
