"""Detection of texts that quote a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from storage.chat_log.event import Event

_RUNS = (5, 6, 7, 8)  # words in a row that are no accident; of a longer line, any eight
_RARE = 16  # letters of one word, as in a link or a password, that is no accident either
_WORD = re.compile(r"\w+")
_UNBROKEN = re.compile(r"\S+")
_SHOWN = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (?:<|\* |-|\*\*\* )([^\s>]+?)[>\s-]")


class QuoteDetector:
    """A detector of quotations of events.

    A text quotes when it has a log line as a tool shows it, a whole line of five words or more,
    eight words in a row, or a long word. Shorter echoes are anybody's words.
    """

    def __init__(self) -> None:
        self._pieces: set[int] = set()
        self._shown: set[tuple[str, str]] = set()

    def add(self, events: Iterable[Event]) -> None:
        """Remember events."""
        for event in events:
            words = _words(event.text)
            self._pieces.update(map(hash, _runs(words, min(len(words), _RUNS[-1]))))
            self._pieces.update(map(hash, _rare(event.text)))
            self._shown.add((f"{event.time:%Y-%m-%d %H:%M:%S}", event.nick.lower()))

    def within(self, text: str) -> bool:
        """Return True if `text` quotes any of the events."""
        if any((time, nick.lower()) in self._shown for time, nick in _SHOWN.findall(text)):
            return True
        words = _words(text)
        runs = (run for length in _RUNS for run in _runs(words, length))
        return any(hash(piece) in self._pieces for piece in (*_rare(text), *runs))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _runs(words: list[str], length: int) -> Iterator[str]:
    """Every `length` words in a row; none, when so few are no sign."""
    if length >= _RUNS[0]:
        for start in range(len(words) - length + 1):
            yield " ".join(words[start : start + length])


def _rare(text: str) -> Iterator[str]:
    """The words that are too long to be written twice by chance."""
    for word in _UNBROKEN.findall(text.lower()):
        if len(bare := word.strip("\"'`.,;:!?()<>[]{}")) >= _RARE:
            yield bare
