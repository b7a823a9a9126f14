"""Quotes of log lines in answers, recognised among the texts that the model was shown.

The ids of the quoted lines are stored with an answer, so that it is erased with whom it quotes.
Here alone words are compared, and only with what the model has read for this very answer: words
that somebody else says elsewhere, or later, are never taken for a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from storage.chat_log.event import Event

_SHORTEST, _LONGEST = 5, 8  # words in a row that are no coincidence; of a longer line any eight
# Characters of a single word, such as a link or a password, that is no coincidence.
_RARE_WORD_LENGTH = 16
_WORD = re.compile(r"\w+")

Run = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text that the model was shown, and the ids of the `lines` of the log that are in it.

    `time` is the id of the first event from which the model could know it.
    """

    text: str
    lines: frozenset[int]
    time: int = field(default=0)

    @classmethod
    def from_event(cls, event: Event) -> ShownText:
        """Return a line of the log as it was shown."""
        return cls(event.text, frozenset({event.id}), event.id)


class QuotingText(str):
    """The result of a tool or a command that quotes log lines, which are `shown` in it."""

    __slots__ = ("shown",)

    shown: tuple[ShownText, ...]

    def __new__(cls, text: str, shown: Iterable[ShownText]) -> QuotingText:
        """Return `text` with the lines in it."""
        result = super().__new__(cls, text)
        result.shown = tuple(shown)
        return result

    @property
    def lines(self) -> frozenset[int]:
        """The ids of the lines."""
        return frozenset(line for text in self.shown for line in text.lines)


def quoted_lines(answer: str, question: str, shown: Iterable[ShownText]) -> frozenset[int]:
    """Return the ids of the lines that `answer` quotes: with their whole text of five to eight
    words, with any eight words of it in a row, or with a long word.

    What stands in the question is no quote, and of several texts with the same words only the
    oldest is quoted: the others may repeat it themselves.
    """
    said, known = _runs(answer), _runs(question)
    lines: set[int] = set()
    for text in sorted(shown, key=lambda text: text.time):
        found = (_runs(text.text) & said) - known
        needed = min(len(_words(text.text)), _LONGEST)
        if any(len(run) in (1, needed) for run in found):
            lines |= text.lines
        known |= found
    return frozenset(lines)


def _words(text: str) -> Sequence[str]:
    return _WORD.findall(text.lower())


def _runs(text: str) -> set[Run]:
    """Return all runs of five to eight words, and the long words."""
    words = _words(text)
    rare = (word.strip("\"'`.,;:!?()<>[]{}") for word in text.lower().split())
    return {(word,) for word in rare if len(word) >= _RARE_WORD_LENGTH} | {
        tuple(words[start : start + length])
        for length in range(_SHORTEST, _LONGEST + 1)
        for start in range(len(words) - length + 1)
    }
