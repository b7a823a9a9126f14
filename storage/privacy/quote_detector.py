"""Detection of texts that quote a person."""

from __future__ import annotations

import re
import secrets
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from storage.chat_log.event import Event

_RUN_LENGTHS = (5, 6, 7, 8)  # words in a row that are no coincidence; of longer lines any eight
# Characters of a single word, such as a link or a password, that is no coincidence.
_MIN_RARE_WORD_LENGTH = 16
_WORD = re.compile(r"\w+")
_UNBROKEN = re.compile(r"\S+")
_SHOWN = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (?:<|\* |-|\*\*\* )([^\s>]+?)[>\s-]")

# A rolling hash (Rabin-Karp): a run of words is hashed as a polynomial of the hashes of its words
# modulo 2^64, so that the hash of any run follows from the two prefix sums at its ends.
_BASE = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_POWERS = [pow(_BASE, exponent, 1 << 64) for exponent in range(_RUN_LENGTHS[-1] + 1)]
_MAX_CACHED_HASHES = 100_000  # words whose hashes are kept in memory


class QuoteDetector:
    """Detects texts that quote given events.

    A text quotes an event if it contains its line as a tool shows it (time and nick), its whole
    text of five to eight words, any eight words of it in a row, or a long word of it. Shorter
    matches are taken for coincidence.

    The words are kept only as 64-bit hashes under a random `key`. A detector that is created with
    the `key` and the `dump` of another one finds the same quotations, also in another process.
    """

    def __init__(self, key: bytes = b"", hashes: bytes = b"") -> None:
        self.key = key or secrets.token_bytes(16)
        self._hashes = set(array("Q", hashes))
        self._words: dict[str, int] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Add events whose quotations are to be found."""
        for event in events:
            words = _words(event.text)
            self._hashes.update(self._runs(words, [min(len(words), _RUN_LENGTHS[-1])]))
            self._hashes.update(map(self._hash, _rare(event.text)))
            self._hashes.add(self._hash(_shown(f"{event.time:%Y-%m-%d %H:%M:%S}", event.nick)))

    def within(self, text: str) -> bool:
        """Return True if `text` quotes any of the events added."""
        if any(self._hash(_shown(*line)) in self._hashes for line in _SHOWN.findall(text)):
            return True
        if any(self._hash(word) in self._hashes for word in _rare(text)):
            return True
        return any(run in self._hashes for run in self._runs(_words(text), _RUN_LENGTHS))

    def dump(self) -> bytes:
        """Return the hashes, sorted, 64 bits each, in the byte order of this machine."""
        return array("Q", sorted(self._hashes)).tobytes()

    def _runs(self, words: Sequence[str], lengths: Iterable[int]) -> Iterator[int]:
        """Yield the hashes of all runs of words of these lengths; lengths below five are
        skipped."""
        sums = [0]
        for word in words:
            sums.append((sums[-1] * _BASE + self._hash(word)) & _MASK)
        for length in lengths:
            if length >= _RUN_LENGTHS[0]:
                for end in range(length, len(sums)):
                    yield (sums[end] - sums[end - length] * _POWERS[length]) & _MASK

    def _hash(self, word: str) -> int:
        known = self._words.get(word)
        if known is None:
            if len(self._words) >= _MAX_CACHED_HASHES:
                self._words.clear()
            # Keyed, so that the stored hashes cannot be matched against a list of words without
            # the key, which `make_nameless` deletes together with them.
            digest = blake2b(word.encode("utf-8", "replace"), key=self.key, digest_size=8).digest()
            known = self._words[word] = int.from_bytes(digest, "little")
        return known


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _shown(time: str, nick: str) -> str:
    """Return the part of a log line, as a tool shows it, that identifies it. With its blanks it
    cannot be equal to a word."""
    return f"{time} {nick.lower()}"


def _rare(text: str) -> Iterator[str]:
    """Yield the words of a text that are too long to be repeated by coincidence."""
    for word in _UNBROKEN.findall(text.lower()):
        if len(bare := word.strip("\"'`.,;:!?()<>[]{}")) >= _MIN_RARE_WORD_LENGTH:
            yield bare
