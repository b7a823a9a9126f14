"""The conversations behind the chat page."""

from __future__ import annotations

from dataclasses import dataclass

from harnesses.core.tendril.answer import Answer
from harnesses.core.tendril.harness import Harness
from harnesses.core.tendril.turn_request import TurnRequest
from llm.client.client import OnText
from llm.skills.learned import TEACH, TeachingTools, is_lesson
from llm.tools.log_search import LogTools
from storage.chat_log.event import Scope
from storage.log import ChatLog
from storage.memory.conversations import Message, Turn

_WHO = "visitor"  # nobody has a name here


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer, as the model wrote it."""

    question: str
    answer: str


class ChatBox:
    """Turns of `harness` in conversations that browsers name, with tools over the `log`."""

    def __init__(self, harness: Harness, log: ChatLog) -> None:
        self._harness = harness
        self._log = log

    async def ask(self, conversation: str, text: str, scope: Scope, on_text: OnText) -> Answer:
        """Answer a question, looking up no more than `scope` shows; `on_text` is given each piece
        of the answer as it is written."""
        tools: list[object] = [LogTools(self._log, scope)]
        if is_lesson(text):
            clock = self._harness.clock
            tools.append(TeachingTools(self._harness.skills, conversation, _WHO, clock.now))
        return await self._harness.turn(
            TurnRequest(
                conversation=conversation,
                who=_WHO,
                text=text,
                tools=tools,
                rights=lambda: {TEACH},
                on_text=on_text,
                private=True,
            )
        )

    async def history(self, conversation: str) -> list[Exchange]:
        """What has been said, oldest first."""
        turns = await self._harness.conversations.turns(conversation)
        return [_exchange(turn) for turn in turns]

    async def forget(self, conversation: str) -> None:
        """Keep nothing of a conversation."""
        await self._harness.clear(conversation)


def _exchange(turn: Turn) -> Exchange:
    """The first and the last message of a turn; between them are tools at work."""
    return Exchange(_content(turn.messages[0]), _content(turn.messages[-1]))


def _content(message: Message) -> str:
    return str(message.get("content") or "")
