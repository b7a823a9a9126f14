"""Entry points of installed packages, by which they extend Terrarium."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoints


def entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group. The files of installed packages are read once, as that
    takes longer than all else that a tendril does to start; what is installed later is not seen."""
    return _installed(group, tuple(sys.path))


@lru_cache(64)
def _installed(group: str, _path: tuple[str, ...]) -> EntryPoints:
    return metadata.entry_points(group=group)
