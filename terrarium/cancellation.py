"""Work that somebody else can stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class ScopeCancelled(Exception):
    """The work was stopped before it was done."""


class CancelScope:
    """Work of the task that makes this.

    It stays in that task, as with asyncio.timeout: a task of its own would cost more than most of
    the work.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._is_stopped = False

    def stop(self) -> None:
        """Stop the work where it waits."""
        if not self._is_stopped:
            self._is_stopped = True
            self._task.cancel()

    async def result(self, work: Awaitable[T]) -> T:
        """Return what `work` does. Raises ScopeCancelled; a cancellation from outside passes."""
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_stopped and not self._task.uncancel():
                raise ScopeCancelled from None
            raise
