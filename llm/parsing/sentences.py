"""Ends an answer after so many sentences: what a small model adds is mostly wrong."""

from __future__ import annotations

import re

_END = re.compile(r"(?<![.\s])[.!?…]+[\"'”’)\]*]*(?=\s)|\n\s*\n")
_NO_END = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|ca|approx|no|st|dr|mr|mrs|ms|prof|jr|sr|[a-z])|^\s*\d+)\.$",
    re.IGNORECASE,
)


class SentenceLimit:
    """Passes on the first `most` sentences of one answer as it streams; None: all of it."""

    def __init__(self, most: int | None) -> None:
        self._left = most
        self._held = ""
        self.has_ended = False

    def feed(self, text: str) -> str:
        """Return the part that belongs to these sentences."""
        if self._left is None:
            return text
        self._held += text
        out = ""
        while not self.has_ended and (end := _END.search(self._held)):
            sentence, self._held = self._held[: end.end()], self._held[end.end() :]
            out += sentence
            if (out.strip() or end[0].strip()) and not _NO_END.search(sentence):
                self._left -= 1
                self.has_ended = self._left <= 0
        if self.has_ended:
            self._held = ""
        return out.rstrip() if self.has_ended else out

    def finish(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return held
