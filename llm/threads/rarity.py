"""How much two lines have in common when they share a word: the rarer, the more."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_MOST = 11.0  # the weight of a word that is in no list
_COMMON = 0.0005  # the share of lines from which on a word is common
_OWN = 20  # a line of the channel itself counts as many of the lines the list was made from
_MEMORY = 10_000  # lines of the channel after which what was learned counts half


def words(text: str) -> frozenset[str]:
    """The different words of a line, of two letters or more, in lower case."""
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
        """Whether a word is likelier to be a word than a nick."""
        return self._counts.get(word, 0) >= _COMMON * self._lines

    def squared_weight(self, word: str) -> float:
        """The square of a word's weight."""
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
