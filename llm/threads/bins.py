"""Numbers cut into a few bins, and a flat list of weights cut into blocks.

The models of this package are additive: a score is a sum of weights, one for the bin of each
feature. So fitting is a convex problem, and scoring a few list look-ups.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import prod


class Bins(list[int]):
    """The bin of each whole number from 0 to `most`: the first of `edges` that it is not above.

    A list, because it is looked into some thousand times for a line.
    """

    def __init__(self, edges: Sequence[int], most: int) -> None:
        super().__init__(bisect_left(edges, value) for value in range(most + 1))
        self.bins = self[-1] + 1
        self.most = most

    def indices(self, start: int, row: int) -> list[int]:
        """For each number the place of its bin, in the given row of the block that `start`s."""
        return [start + row * self.bins + each for each in self]


class WeightLayout:
    """Gives each feature its block of the flat list."""

    def __init__(self) -> None:
        self.size = 0

    def block(self, *sizes: int) -> int:
        """Where a feature of so many bins begins; with several sizes, of their product."""
        start = self.size
        self.size += prod(sizes)
        return start


Weights = Sequence[float]
"""One weight for each bin of each feature of a model."""
