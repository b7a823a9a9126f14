"""A question to the model."""

from __future__ import annotations

from dataclasses import dataclass

from llm.messages.message import Message
from storage.chat_log.pending_event import Entry


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asks, and who it is.

    `line` is the one, on its way into the log, that holds a question which joins another one.
    """

    who: str
    text: str
    line: Entry | None = None

    async def written(self) -> None:
        """Wait until its line is in the log."""
        if self.line:
            await self.line.written()

    def message(self) -> Message:
        """The question as memory keeps it; one with a line must be `written`."""
        message: Message = {"role": "user", "content": self.text, "name": self.who}
        return message | {"anchor": self.line.id} if self.line and self.line.id else message
