"""Exclusive use of a data folder, for commands that replace or move its stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harnesses.core.launcher import tendrils
from harnesses.core.tendril.status import ProcessState, reports
from storage.db.process_lock import AlreadyRunning, hold_lock

_OTHERS = ("up", "server", "logs-import")
"""The locks of commands that write stores and are no tendrils."""


@contextmanager
def hold_stopped(data: Path, command: str) -> Iterator[None]:
    """Keep `terrarium up`, the agent server, imports and all tendrils from starting on a data
    folder, during `command`.

    Raises AlreadyRunning, and Unavailable if the folder cannot be written.
    """
    names = dict.fromkeys((*_OTHERS, *tendrils.names(), *(each.name for each in reports(data))))
    with ExitStack() as locks:
        # The locks come before the check, so that nothing can start between the two.
        for name in names:
            locks.enter_context(hold_lock(data, name, command))
        # A process on another machine that shares the folder may hold no lock that we can see.
        for each in reports(data):
            if each.state is not ProcessState.STOPPED and each.is_fresh:
                raise AlreadyRunning(f"terrarium run {each.name}", data, str(each.pid))
        yield
