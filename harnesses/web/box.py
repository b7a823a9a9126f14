"""The conversations behind the chat page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harnesses.core.harness import Answer, Harness
from llm.client import OnText
from storage.conversations import Message, Turn

_WHO = "visitor"  # nobody has a name here


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer, as the model wrote it."""

    question: str
    answer: str


class ChatBox:
    """Turns of `harness` in conversations that browsers name, with the `tools` of the page."""

    def __init__(self, harness: Harness, tools: Sequence[object]) -> None:
        self._harness = harness
        self._tools = tools

    async def ask(self, conversation: str, text: str, on_text: OnText) -> Answer:
        """Answer a question; `on_text` is given each piece of it as it is written."""
        return await self._harness.turn(
            conversation, who=_WHO, text=text, tools=self._tools, on_text=on_text
        )

    async def history(self, conversation: str) -> list[Exchange]:
        """What has been said, oldest first."""
        turns = await self._harness.conversations.turns(conversation)
        return [_exchange(turn) for turn in turns]

    async def forget(self, conversation: str) -> None:
        """Keep nothing of a conversation."""
        await self._harness.conversations.clear(conversation)


def _exchange(turn: Turn) -> Exchange:
    """The first and the last message of a turn; between them are tools at work."""
    return Exchange(_content(turn.messages[0]), _content(turn.messages[-1]))


def _content(message: Message) -> str:
    return str(message.get("content") or "")
