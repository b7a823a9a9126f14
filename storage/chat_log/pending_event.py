"""A line on its way into the log."""

from __future__ import annotations

import asyncio

from storage.chat_log.event import Event


class PendingEvent:
    """An event in line to be stored, after all that was put in line before it.

    `answers` is the entry of the question that an own line answers. An entry without an event
    keeps nothing: it only has its place in the line. To be made in a running event loop.
    """

    def __init__(self, event: Event | None, answers: PendingEvent | None = None) -> None:
        self.event = event
        self.answers = answers
        self.id = 0
        self._before: PendingEvent | None = None
        self._newest = 0
        loop = asyncio.get_running_loop()
        self._written: asyncio.Future[None] = loop.create_future()
        self.durable: asyncio.Future[int] = loop.create_future()
        """Done with the id once no power cut can undo it."""

    @property
    def is_visible(self) -> bool:
        """Whether everybody can read it in the log."""
        return self._written.done()

    def after(self, before: PendingEvent | None) -> None:
        """Take its place in line, behind another one."""
        self._before = before

    async def preceding_id(self) -> int:
        """An id that is greater than those of all events before it in line, and not than its own,
        once everybody can read these; 0 when there is none."""
        before = self._before or self
        await before.wait_visible()
        if before is not self and before._newest:
            return before._newest + 1
        return await self.wait_visible() or (self._newest and self._newest + 1)

    async def wait_visible(self) -> int:
        """Its id, once everybody can read it in the log; 0 of one without an event."""
        await asyncio.shield(self._written)
        return self.id

    def mark_visible(self, event_id: int, newest: int = 0) -> None:
        """Everybody can read it from now on; the `newest` event up to it is another one, if it has
        none itself."""
        self.id, self._newest = event_id, event_id or newest
        self._before = None  # nor keep all that was ever said
        self._written.set_result(None)

    def mark_durable(self) -> None:
        """No power cut can undo it from now on."""
        if not self.durable.cancelled():
            self.durable.set_result(self.id)
