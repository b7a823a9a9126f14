"""Detection of texts that quote a person."""

from __future__ import annotations

import re
import secrets
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from storage.chat_log.event import Event

_RUNS = (5, 6, 7, 8)  # words in a row that are no accident; of a longer line, any eight
_RARE = 16  # letters of one word, as in a link or a password, that is no accident either
_WORD = re.compile(r"\w+")
_UNBROKEN = re.compile(r"\S+")
_SHOWN = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (?:<|\* |-|\*\*\* )([^\s>]+?)[>\s-]")

# A run of words is hashed as a polynomial of the hashes of its words, modulo 2^64: that of each run
# of a text follows from the sums up to its begin and its end, however long it is.
_BASE = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_POWERS = [pow(_BASE, exponent, 1 << 64) for exponent in range(_RUNS[-1] + 1)]
_CACHED = 100_000  # words whose hashes are in memory


class QuoteDetector:
    """A detector of quotations of events.

    A text quotes when it has a log line as a tool shows it, a whole line of five words or more,
    eight words in a row, or a long word. Shorter echoes are anybody's words.

    It knows the words by 64-bit hashes only, under a random `key`. `dump` returns these hashes, and
    a detector that is given both finds the same quotations, also in another process.
    """

    def __init__(self, key: bytes = b"", hashes: bytes = b"") -> None:
        self.key = key or secrets.token_bytes(16)
        self._hashes = set(array("Q", hashes))
        self._words: dict[str, int] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Remember events."""
        for event in events:
            words = _words(event.text)
            self._hashes.update(self._runs(words, [min(len(words), _RUNS[-1])]))
            self._hashes.update(map(self._hash, _rare(event.text)))
            self._hashes.add(self._hash(_shown(f"{event.time:%Y-%m-%d %H:%M:%S}", event.nick)))

    def within(self, text: str) -> bool:
        """Return True if `text` quotes any of the events."""
        if any(self._hash(_shown(*line)) in self._hashes for line in _SHOWN.findall(text)):
            return True
        if any(self._hash(word) in self._hashes for word in _rare(text)):
            return True
        return any(run in self._hashes for run in self._runs(_words(text), _RUNS))

    def dump(self) -> bytes:
        """Return the hashes of what it knows, 64 bits each, in the byte order of this machine."""
        return array("Q", sorted(self._hashes)).tobytes()

    def _runs(self, words: Sequence[str], lengths: Iterable[int]) -> Iterator[int]:
        """Yield the hashes of all runs of words of these lengths; of none that is too short."""
        sums = [0]
        for word in words:
            sums.append((sums[-1] * _BASE + self._hash(word)) & _MASK)
        for length in lengths:
            if length >= _RUNS[0]:
                for end in range(length, len(sums)):
                    yield (sums[end] - sums[end - length] * _POWERS[length]) & _MASK

    def _hash(self, word: str) -> int:
        known = self._words.get(word)
        if known is None:
            if len(self._words) >= _CACHED:
                self._words.clear()
            digest = blake2b(word.encode("utf-8", "replace"), key=self.key, digest_size=8).digest()
            known = self._words[word] = int.from_bytes(digest, "little")
        return known


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _shown(time: str, nick: str) -> str:
    """Return what tells a log line as a tool shows it; no word has a blank in it."""
    return f"{time} {nick.lower()}"


def _rare(text: str) -> Iterator[str]:
    """The words that are too long to be written twice by chance."""
    for word in _UNBROKEN.findall(text.lower()):
        if len(bare := word.strip("\"'`.,;:!?()<>[]{}")) >= _RARE:
            yield bare
