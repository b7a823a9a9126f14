"""Supervision of child processes: none outlives its supervisor.

A supervisor starts a child with `TERRARIUM_SUPERVISED=1` and a pipe as standard input, to which it
never writes. However the supervisor ends, kill -9 included, the system closes the pipe: the child
reads the end of file and stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from terrarium.cancellation import spawn_contained

SUPERVISED = "TERRARIUM_SUPERVISED"


async def parent_gone() -> None:
    """Return when the supervisor of this process has ended; never if it has none."""
    if os.environ.get(SUPERVISED) != "1":
        await asyncio.Event().wait()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    # A copy, as the transport closes it: this may be called again.
    copied = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, copied)
    try:
        while await reader.read(1024):
            pass
    finally:
        transport.close()


async def told_to_stop() -> None:
    """Return on SIGTERM, on SIGINT, or when the supervisor of this process has ended."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        waiting = {asyncio.ensure_future(stop.wait()), asyncio.ensure_future(parent_gone())}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def is_stopped_within(seconds: float) -> bool:
    """Wait for so many seconds outside an event loop; return True at once when told to stop."""

    async def wait() -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await told_to_stop()
                return True
        return False

    return asyncio.run(wait())


async def serve_until_stopped(
    serving: Coroutine[Any, Any, None],
    *background: Coroutine[Any, Any, None],
    finish: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Run `serving` until it returns or `told_to_stop`, when `finish` runs before all is cancelled,
    with `background`. Raises an ExceptionGroup of their errors."""
    async with asyncio.TaskGroup() as tasks:
        beside = [*map(tasks.create_task, background)]
        main, stopping = tasks.create_task(serving), tasks.create_task(told_to_stop())
        # An error of any task makes the group cancel this wait and all other tasks.
        await asyncio.wait({main, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if finish and not main.done():
            await finish()
        # What runs in the background never ends by itself, so the group would not end either.
        for task in (*beside, main, stopping):
            task.cancel()


class ContainedTasks:
    """Background tasks whose errors are logged and end nothing else, while `run` runs."""

    def __init__(self) -> None:
        self._tasks = asyncio.TaskGroup()

    async def run(self) -> None:
        """Run what is spawned, until cancelled; then cancel it."""
        async with self._tasks:
            await asyncio.Event().wait()

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Start `work`, unless the tasks are being cancelled."""
        try:
            spawn_contained(self._tasks, work)
        except RuntimeError:
            work.close()


def notify_systemd(state: str) -> None:
    """Tell systemd about this process, if it started it as a service of the type notify: READY=1,
    WATCHDOG=1 or STATUS=..., as in sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        # An @ stands for the null byte with which a name in the abstract namespace begins.
        name = address.replace("@", "\0", 1) if address.startswith("@") else address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
            notifying.setblocking(False)  # a reader that is behind must not hold us up
            notifying.sendto(state.encode(), name)


def root_cause(error: Exception) -> Exception:
    """Return the first leaf of nested exception groups, or the error itself if it is no group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def end_child(process: Process, grace: float) -> None:
    """End a child that leads its own process group, and all processes of that group.

    The child is sent SIGTERM; when it has ended, or after `grace` seconds, what is left of the
    group is killed. Return when the child has been reaped. Its standard input is closed if it is a
    pipe.
    """
    if process.returncode is None:
        # Not Process.terminate: it polls first, and could reap the child before asyncio does, which
        # would lose the exit status.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
    with suppress(TimeoutError):
        async with asyncio.timeout(grace):
            await process.wait()
    with suppress(ProcessLookupError, PermissionError):  # EPERM: macOS, for a group of zombies
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    if process.stdin is not None:
        process.stdin.close()
        with suppress(ConnectionError):
            await process.stdin.wait_closed()
