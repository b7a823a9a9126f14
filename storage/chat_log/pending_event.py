"""Events that are queued for the log."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from storage.chat_log.event import Event

PATIENCE = 2.0
"""Seconds for which somebody waits for an event to be in the log. Longer than that it takes where
the disk is full or the file damaged; then an answer goes out without."""


class PendingEvent:
    """An event in the log's queue, with its place in the order of all that was queued.

    `answers` is the pending event of the question that a line of our own answers. One without an
    event stores nothing and only marks a place in the order. Make it in a running event loop.
    """

    def __init__(self, event: Event | None, answers: PendingEvent | None = None) -> None:
        self.event = event
        self.answers = answers
        self.id = 0
        self._before: PendingEvent | None = None
        self._newest = 0
        loop = asyncio.get_running_loop()
        self._until = loop.time() + PATIENCE
        self._written: asyncio.Future[None] = loop.create_future()
        self.durable: asyncio.Future[int] = loop.create_future()
        """Done with the id once no power cut can undo it."""

    @property
    def is_visible(self) -> bool:
        """True once every reader finds it in the log."""
        return self._written.done()

    def after(self, before: PendingEvent | None) -> None:
        """Set the one that was queued just before."""
        self._before = before

    async def preceding_id(self) -> int:
        """Return the bound of what was queued before it, once all of that is visible.

        It is an id greater than those of all events queued before, and not greater than its own; 0
        when there is no event at all, or when they cannot be stored.
        """
        before = self._before or self
        await before.wait_visible()
        if before is not self and before._newest:
            return before._newest + 1
        return await self.wait_visible() or (self._newest and self._newest + 1)

    async def wait_visible(self) -> int:
        """Return its id, once every reader finds it in the log; 0 of one without an event, and of
        one that has not come so far within `PATIENCE` of being queued."""
        if not self._written.done():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    await asyncio.shield(self._written)
        return self.id

    def drop(self) -> None:
        """Record that it will not be stored: too many wait already."""
        self.mark_visible(0)
        self.durable.cancel()

    def mark_visible(self, event_id: int, newest: int = 0) -> None:
        """Record that it has been committed. `newest` is the id of the last event up to it, for one
        that has no event itself."""
        self.id, self._newest = event_id, event_id or newest
        self._before = None  # nor keep all that was ever said
        self._written.set_result(None)

    def mark_durable(self) -> None:
        """Record that it has been fsynced."""
        if not self.durable.cancelled():
            self.durable.set_result(self.id)
