"""The conversations behind the chat page."""

from __future__ import annotations

from dataclasses import dataclass

from harnesses.core.services.peers import Origin
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from llm.client.client import OnText
from llm.messages.image import Image
from llm.skills.registry import TEACH, TeachingTools, is_lesson
from llm.tools.log_search import LogTools
from storage.chat_log.event import Identity, Scope
from storage.log import ChatLog
from storage.memory.conversations import Message, Turn

_WHO = "visitor"  # nobody has a name here


@dataclass(frozen=True, slots=True)
class ChatExchange:
    """A question and its answer, as the model wrote it."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class VisitorQuestion:
    """A question of somebody at `address`, whose answer looks up no more than `scope` shows."""

    text: str
    scope: Scope
    address: str
    image: Image | None = None


class ChatSession:
    """Turns of `harness` in conversations that browsers name, with tools over the `log`."""

    def __init__(self, tendril: Tendril, log: ChatLog) -> None:
        self._tendril = tendril
        self._log = log

    async def ask(
        self, conversation: str, question: VisitorQuestion, on_text: OnText
    ) -> TurnResult:
        """Answer a question; `on_text` is given each piece of the answer as it is written."""
        tools: list[object] = [LogTools(self._log, question.scope)]
        if is_lesson(question.text):
            clock = self._tendril.clock
            tools.append(TeachingTools(self._tendril.skills, conversation, _WHO, clock.now))
        return await self._tendril.turn(
            TurnRequest(
                conversation=conversation,
                who=_WHO,
                text=question.text,
                payer=question.address,
                image=question.image,
                tools=tools,
                rights=lambda: {TEACH},
                on_text=on_text,
                private=True,
                origin=Origin(self._tendril.name, Identity(_WHO), question.scope),
            )
        )

    async def history(self, conversation: str) -> list[ChatExchange]:
        """Return the messages of the session, oldest first."""
        turns = await self._tendril.conversations.turns(conversation)
        return [_exchange(turn) for turn in turns]

    async def forget(self, conversation: str) -> None:
        """Keep nothing of a conversation."""
        await self._tendril.clear(conversation)


def _exchange(turn: Turn) -> ChatExchange:
    """Return the first and the last message of a turn; between them are tools at work."""
    return ChatExchange(_content(turn.messages[0]), _content(turn.messages[-1]))


def _content(message: Message) -> str:
    return str(message.get("content") or "")
