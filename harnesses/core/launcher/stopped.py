"""Exclusive use of a data folder, for commands that replace or move its stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harnesses.core.launcher import tendrils
from harnesses.core.lock import AlreadyRunning, hold_lock
from harnesses.core.tendril.status import ProcessState, reports


@contextmanager
def hold_stopped(data: Path) -> Iterator[None]:
    """Keep `terrarium up` and all tendrils from starting on a data folder.

    Raises AlreadyRunning, and TendrilError if the folder cannot be written.
    """
    names = dict.fromkeys((*tendrils.names(), *(each.name for each in reports(data))))
    with ExitStack() as locks:
        # The locks come before the check, so that nothing can start between the two.
        locks.enter_context(hold_lock(data, "up", "terrarium up"))
        for name in names:
            locks.enter_context(hold_lock(data, name, f"terrarium run {name}"))
        # A process on another machine that shares the folder may hold no lock that we can see.
        for each in reports(data):
            if each.state is not ProcessState.STOPPED and each.is_fresh:
                raise AlreadyRunning(f"terrarium run {each.name}", data, str(each.pid))
        yield
