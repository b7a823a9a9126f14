"""The installed tendrils, found by the entry point group `terrarium.tendrils`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from harnesses.core.errors import TendrilError, UnknownTendril
from storage.queues.leases import LeaseLost

if TYPE_CHECKING:  # `terrarium up` only starts tendrils as processes: keep its imports light
    from harnesses.core.tendril.base import Tendril

GROUP = "terrarium.tendrils"


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
