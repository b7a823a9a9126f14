"""Exclusive use of a data folder, for commands that replace or move its stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harnesses.core.launcher import tendrils
from harnesses.core.tendril.status import ProcessState, reports
from storage.db.process_lock import AlreadyRunning, hold_lock

_OTHERS = {
    "up": "terrarium up",
    "server": "terrarium server",
    "logs-import": "terrarium logs import",
}
"""Commands that write stores and are no tendrils, by the names of their locks."""


@contextmanager
def hold_stopped(data: Path) -> Iterator[None]:
    """Keep `terrarium up`, the agent server, imports and all tendrils from starting on a data
    folder.

    Raises AlreadyRunning, and Unavailable if the folder cannot be written.
    """
    names = dict.fromkeys((*tendrils.names(), *(each.name for each in reports(data))))
    commands = _OTHERS | {name: f"terrarium run {name}" for name in names}
    with ExitStack() as locks:
        # The locks come before the check, so that nothing can start between the two.
        for name, command in commands.items():
            locks.enter_context(hold_lock(data, name, command))
        # A process on another machine that shares the folder may hold no lock that we can see.
        for each in reports(data):
            if each.state is not ProcessState.STOPPED and each.is_fresh:
                raise AlreadyRunning(f"terrarium run {each.name}", data, str(each.pid))
        yield
