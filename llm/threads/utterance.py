"""A line that somebody said, reduced to what tells its conversation."""

from __future__ import annotations

from dataclasses import dataclass

MOST_WORDS = 20
"""Beyond that, a line is just long."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Number `n` of the lines that people said; people are numbers of `People`."""

    n: int
    minute: int
    speaker: int
    addressee: int | None
    named: frozenset[int]
    words: frozenset[str]
    length: int  # in words, at most MOST_WORDS
    asks: bool
