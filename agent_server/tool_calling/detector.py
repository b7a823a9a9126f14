"""A detector of tool calls in a text that streams, at its beginning or after some words."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DetectedCall:
    """The text is a call of this known tool; `many` when it is a list of calls."""

    name: str
    many: bool


Verdict = DetectedCall | Literal["open", "text"]
"""`open`: could still become a call; `text`: cannot."""

_FENCE = re.compile(r"\s*(?:```(?:json)?\s*)?")
_MARKS = ("{", '"name"', ":")


class CallDetector:
    """Follows a text until a line of it becomes a call of one of `names`.

    `buffered` is what may still be a call, and the words before it that came with it.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._line: int | None = 0  # where in `buffered` a line begins that may be a call
        self.buffered = ""

    @property
    def words(self) -> str:
        """The part of `buffered` before the call."""
        return self.buffered[: self._line]

    def feed(self, piece: str) -> Verdict:
        """Judge the text with one more piece; after "text", all of it may be let go."""
        self.buffered += piece
        while True:
            if self._line is None:
                end = self.buffered.find("\n")
            elif (verdict := detect(self.buffered[self._line :], self._names)) != "text":
                return verdict
            else:
                end = self.buffered.find("\n", self._line)
            if end < 0:
                self.buffered, self._line = "", None
                return "text"
            self._line = end + 1


def detect(text: str, names: Collection[str]) -> Verdict:
    """Judge the beginning of an answer, optionally in a Markdown fence, against known tools."""
    if _could_be_fence(text):
        return "open"
    match = _FENCE.match(text)
    rest = text[match.end() :] if match else text
    many = rest.startswith("[")
    if many:
        rest = rest[1:].lstrip()
    for mark in _MARKS:
        if not rest.startswith(mark):
            return "open" if mark.startswith(rest) else "text"
        rest = rest[len(mark) :].lstrip()
    for name in names:
        if rest.startswith(f'"{name}"'):
            return DetectedCall(name, many)
    return "open" if any(f'"{name}"'.startswith(rest) for name in names) else "text"


def _could_be_fence(text: str) -> bool:
    begun = text.lstrip()
    return "```json".startswith(begun)
