"""The parts of the models of threads: binned features, word rarity, the fitted weights.

The models are additive: a score is a sum of weights, one for the bin of each feature. So fitting is
a convex problem, and scoring a few list look-ups.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
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
        """Allocate a feature of so many bins, or of their product; return its first index."""
        start = self.size
        self.size += prod(sizes)
        return start


Weights = Sequence[float]
"""One weight for each bin of each feature of a model."""


_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_MOST = 11.0  # the weight of a word that is in no list
_COMMON = 0.0005  # the share of lines from which on a word is common
_OWN = 20  # a line of the channel itself counts as many of the lines the list was made from
_MEMORY = 10_000  # lines of the channel after which what was learned counts half


def words(text: str) -> frozenset[str]:
    """Return the different words of a line, of two letters or more, in lower case."""
    return frozenset(word for word in _WORD.findall(text.lower()) if len(word) > 1)


class InverseDocumentFrequency:
    """Inverse document frequency: ln(lines / lines with the word), at most 11.

    It begins with a list made from other channels and learns the words of this one: what is rare
    elsewhere may be the talk of the day here, and the channel may speak another language.
    """

    def __init__(self, counts: Mapping[str, int], lines: int) -> None:
        """`counts` has, of so many `lines`, those with the word."""
        self._counts = counts
        self._lines = lines
        self._own: Counter[str] = Counter()
        self._own_lines = 0

    def is_common(self, word: str) -> bool:
        """Return if a word is likelier to be a word than a nick."""
        return self._counts.get(word, 0) >= _COMMON * self._lines

    def squared_weight(self, word: str) -> float:
        """Return the square of a word's weight."""
        listed = self._counts.get(word)
        seen = (listed or 3) + _OWN * self._own[word]
        return min(math.log((self._lines + _OWN * self._own_lines) / seen), _MOST) ** 2

    def learn(self, line: Iterable[str]) -> None:
        """Learn from the words of one more line."""
        self._own.update(line)
        self._own_lines += 1
        if self._own_lines > _MEMORY:
            self._own = Counter({word: n // 2 for word, n in self._own.items() if n > 1})
            self._own_lines //= 2


@dataclass(frozen=True, slots=True)
class ThreadModel:
    """The parameters that `benchmarks/context_fit.py` has fitted to #ubuntu logs with hand-made
    reply links (Kummerfeld et al., ACL 2019): weights of the link and ranking models, and in how
    many of `lines` lines each frequent word is."""

    links: Weights
    ranking: Weights
    words: Mapping[str, int]
    lines: int


@cache
def load_model() -> ThreadModel:
    """Return the model that is part of the package."""
    saved = json.loads((files("llm.threads") / "model.json").read_text(encoding="utf-8"))
    return ThreadModel(saved["links"], saved["ranking"], saved["words"], saved["lines"])
