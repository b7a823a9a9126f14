"""Sentences as tokens, and the phrases of `vocabulary.toml` in them.

The grammars of numbers, days, times and spans read the tokens once, from left to right, and take
the longest phrase of a category at each.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path

MAX_TEXT_LENGTH = 500
"""Maximum characters of a text that is read: reading it blocks the event loop."""

_TOKEN = re.compile(
    r"\d{4}([-/])\d\d?\1\d\d?(?!\d)|\d+(?:[:.]\d+)*|[ap]\.m\b\.?|[^\W\d_]+(?:['’][^\W\d_]+)*|\S",
    re.I,
)
_LETTERS = str.maketrans({"’": "'", "ß": "ss", "ł": "l"})


class Sentence:
    """The tokens of a text: words, numbers, ISO dates and punctuation marks, in lower case and
    without accents. A position is the index of a token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matches = list(_TOKEN.finditer(text[:MAX_TEXT_LENGTH]))
        self.words = tuple(plain_word(match[0]) for match in self.matches)

    def __len__(self) -> int:
        return len(self.words)

    def word(self, at: int) -> str:
        """Return the token at a position, "" outside of the text."""
        return self.words[at] if 0 <= at < len(self.words) else ""

    def is_glued(self, at: int) -> bool:
        """Return whether no space separates a token from the one before it."""
        is_inside = 0 < at < len(self.words)
        return is_inside and self.matches[at].start() == self.matches[at - 1].end()

    def phrase(self, category: str, at: int) -> tuple[str, int] | None:
        """Return the value of the longest phrase of a category that begins at a position, and the
        position after it; None if there is none."""
        for words, value in _vocabulary()[category].get(self.word(at), ()):
            if self.words[at : at + len(words)] == words:
                return value, at + len(words)
        return None

    def after(self, category: str, at: int) -> int | None:
        """Return the position after a phrase of a category, None if none begins there."""
        found = self.phrase(category, at)
        return found[1] if found else None

    def skip(self, category: str, at: int) -> int:
        """Return the position after a phrase of a category, or `at` if none begins there."""
        return self.after(category, at) or at

    def follows(self, category: str, at: int) -> bool:
        """Return whether a position follows a phrase of a category."""
        return any(
            (found := self.phrase(category, start)) and found[1] == at
            for start in range(max(0, at - 4), at)
        )

    def between(self, start: int, end: int) -> str:
        """Return the text of the tokens [start, end)."""
        if start >= end:
            return ""
        return self.text[self.matches[start].start() : self.matches[end - 1].end()]

    def may_begin(self, at: int) -> bool:
        """Return whether a time may begin at a position: not inside of a word, path or version."""
        before = self.word(at - 1)[-1:]
        return not self.is_glued(at) or not (before.isalnum() or before in "'.:/-_")

    def may_end(self, at: int) -> bool:
        """Return whether a time may end before a position."""
        return not self.is_glued(at) or not (self.word(at)[0].isalnum() or self.word(at) in "'/-_")


def plain_word(word: str) -> str:
    """Return a word in lower case and without accents."""
    word = word.lower().translate(_LETTERS)
    if word.isascii():
        return word
    bare = unicodedata.normalize("NFD", word)
    return "".join(char for char in bare if not unicodedata.combining(char)) or word


@cache
def _vocabulary() -> Mapping[str, Mapping[str, Sequence[tuple[tuple[str, ...], str]]]]:
    """Return the phrases of each category by their first word, longest first, with their values."""
    stored = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    numbers = {int(value): listed.split("|") for value, listed in stored["number"].items()}
    for ten, one in product(range(20, 100, 10), range(1, 10)):  # German has them as one word
        tens, ones = (numbers[value][1].split(",")[0].strip() for value in (ten, one))
        word = f"{ones.removesuffix('s') if one == 1 else ones}und{tens}"
        value = str(ten + one)
        stored["number"][value] = f"{stored['number'].get(value, '')}, {word}"
    found: dict[str, dict[str, list[tuple[tuple[str, ...], str]]]] = {}
    for category, values in stored.items():
        phrases = [
            (tuple(plain_word(match[0]) for match in _TOKEN.finditer(phrase)), value)
            for value, listed in values.items()
            for phrase in listed.replace("|", ",").split(",")
        ]
        for words, value in sorted(phrases, key=lambda phrase: -len(phrase[0])):
            if words:
                found.setdefault(category, {}).setdefault(words[0], []).append((words, value))
    return found
