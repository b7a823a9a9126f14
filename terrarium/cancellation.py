"""A scope that another task can cancel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class ScopeCancelled(Exception):
    """The scope was cancelled before its work was done."""


class CancelScope:
    """A cancellable part of the work of the current task.

    It stays in that task, as with asyncio.timeout: a task of its own would cost more than most of
    the work.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._is_stopped = False

    def stop(self) -> None:
        """Cancel the work at its current await."""
        if not self._is_stopped:
            self._is_stopped = True
            self._task.cancel()

    async def result(self, work: Awaitable[T]) -> T:
        """Await `work`. Raises ScopeCancelled after `stop`; other cancellations pass through."""
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_stopped and not self._task.uncancel():
                raise ScopeCancelled from None
            raise


async def await_shielded(running: asyncio.Future[T]) -> T:
    """Return the result of `running`, which is awaited to its end even when the caller is
    cancelled: for work that must not go on unobserved, such as a thread that holds a connection.
    """
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # retrieve it, so that asyncio does not log it as never retrieved
        raise
