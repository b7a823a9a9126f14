"""A question to the model."""

from __future__ import annotations

from dataclasses import dataclass

from llm.messages.message import Message
from storage.chat_log.pending_event import PendingEvent


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the person who asks it.

    `pending_event` is the one, on its way into the log, that holds a question which joins another
    one.
    """

    who: str
    text: str
    pending_event: PendingEvent | None = None

    async def wait_logged(self) -> None:
        """Wait until its line is in the log."""
        if self.pending_event:
            await self.pending_event.wait_visible()

    def message(self) -> Message:
        """Return the question as a message to be stored; await `wait_logged` before."""
        message: Message = {"role": "user", "content": self.text, "name": self.who}
        return (
            message | {"anchor": self.pending_event.id}
            if self.pending_event and self.pending_event.id
            else message
        )
