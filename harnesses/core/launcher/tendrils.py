"""The tendrils that installed packages bring, by the entry point group `terrarium.tendrils`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from harnesses.core.errors import TendrilError, UnknownTendril
from storage.queues.leases import LeaseLost

if TYPE_CHECKING:  # `terrarium up` starts tendrils, and needs nothing of what they are made of
    from harnesses.core.tendril.base import Tendril

GROUP = "terrarium.tendrils"


def names() -> list[str]:
    """Return the names of all installed tendrils."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def tendril(name: str) -> type[Tendril]:
    """Return the class of a tendril. Only its own package is imported: others may be broken.

    Raises UnknownTendril, and TendrilError when its package cannot be imported.
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
    """Run a tendril until it is told to stop; `again` makes one that stands by for who has replaced
    it. Raises what it raises."""
    while True:
        try:
            return asyncio.run(process.run())
        except LeaseLost as lost:
            say(f"terrarium: {lost}; standing by")
            process = again()
