"""Tables of phrases and what they mean: columns between " | ", comments after "#"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def rows(name: str) -> Sequence[Sequence[str]]:
    """Return the rows of a table by its path below `tests`."""
    lines = (Path(__file__).parents[1] / name).read_text(encoding="utf-8").splitlines()
    told = [line for line in lines if line and not line.startswith("#")]
    return [[cell.strip() for cell in line.split(" | ")] for line in told]
