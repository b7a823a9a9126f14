"""The installed tendrils (entry points `terrarium.tendrils`), and the data folder they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from harnesses.core.errors import TendrilError, UnknownTendril
from harnesses.core.tendril.status import ProcessState, reports
from storage.db.process_lock import AlreadyRunning, hold_lock
from storage.queues.leases import LeaseLost

if TYPE_CHECKING:  # `terrarium up` only starts tendrils as processes: keep its imports light
    from harnesses.core.tendril.base import Tendril

GROUP = "terrarium.tendrils"

_OTHERS = ("up", "server", "logs-import")
"""The locks of commands that write stores and are no tendrils."""


def names() -> list[str]:
    """Return the names of all installed tendrils, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def tendril(name: str) -> type[Tendril]:
    """Return the class of a tendril. No other tendril is imported, as its package may be broken.

    Raises UnknownTendril, and TendrilError if the package cannot be imported.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise UnknownTendril(name, names())
    entry = next(iter(found))
    try:
        kind: type[Tendril] = entry.load()
    except (ImportError, AttributeError) as error:
        raise TendrilError(
            f'the tendril "{name}" cannot be loaded from {entry.value}: {error}'
        ) from error
    return kind


def run_until_stopped(
    process: Tendril, again: Callable[[], Tendril], say: Callable[[str], None]
) -> None:
    """Run a tendril until it is told to stop. Raises what it raises, except LeaseLost.

    After LeaseLost another process has taken over; the tendril that `again` creates then runs as
    its standby.
    """
    while True:
        try:
            return asyncio.run(process.run())
        except LeaseLost as lost:
            say(f"terrarium: {lost}; standing by")
            process = again()


@contextmanager
def hold_stopped(data: Path, command: str) -> Iterator[None]:
    """Keep `terrarium up`, the agent server, imports and all tendrils from starting on a data
    folder, during a `command` that replaces or moves its stores.

    Raises TendrilError if one of them runs, and Unavailable if the folder cannot be written.
    """
    known = dict.fromkeys((*_OTHERS, *names(), *(each.name for each in reports(data))))
    with ExitStack() as locks:
        try:
            # The locks come before the check, so that nothing can start between the two.
            for name in known:
                locks.enter_context(hold_lock(data, name, command))
            # A process on another machine that shares the folder may hold no lock we can see.
            for each in reports(data):
                if each.state is not ProcessState.STOPPED and each.is_fresh:
                    raise AlreadyRunning(f"terrarium run {each.name}", data, str(each.pid))
        except AlreadyRunning as error:
            raise TendrilError(
                f"`{error.command}` (process {error.pid}) runs on {data}; stop everything, and run"
                " the same command again"
            ) from error
        yield
