"""Limits of what an error or a cancellation ends: scopes, shielded and contained work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, TypeVar

import structlog

_log = structlog.get_logger()

T = TypeVar("T")


class ScopeCancelled(Exception):
    """The scope was cancelled before its work was done."""


class CancelScope:
    """A part of the current task's work that can be cancelled by itself. As with asyncio.timeout it
    stays in the task: another one would cost more than most of the work."""

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
            # `uncancel` returns how many other cancellations are pending: those of the whole task
            # must not be swallowed.
            if self._is_stopped and not self._task.uncancel():
                raise ScopeCancelled from None
            raise


async def await_shielded(running: asyncio.Future[T]) -> T:
    """Return the result of `running`, for which a cancelled caller waits before it is cancelled: it
    must not go on unobserved, as a thread that holds a connection."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # retrieve it, so that asyncio does not log it as never retrieved
        raise


@contextlib.asynccontextmanager
async def run_beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` for the duration of the block; an error of it ends the block, too. Errors, of the
    block as well, are raised as an ExceptionGroup."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in running:
                task.cancel()


def spawn_contained(tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, object]) -> None:
    """Run `work` in a task group; its errors are logged as `task.failed` and end no other task."""

    async def contain() -> None:
        try:
            await work
        except Exception:  # noqa: BLE001 -- the boundary of one request
            _log.exception("task.failed")

    tasks.create_task(contain())
