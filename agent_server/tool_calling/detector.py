"""An incremental detector of tool calls in streamed text, at the beginning of any line."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DetectedCall:
    """A call of the tool `name`; `many` if it is the first one in a JSON list."""

    name: str
    many: bool


Verdict = DetectedCall | Literal["open", "text"]
"""`open`: the text may still become a call; `text`: it cannot."""

_FENCE = re.compile(r"\s*(?:(?:```(?:json)?|<tool_call>)\s*)?")
# The beginning of a call in parts; white space may stand between them.
_MARKS = ("{", '"name"', ":")


class CallDetector:
    """Searches streamed text for a line that begins a call of one of `names`.

    `buffered` is the text held back because it may be a call, with any words before the call that
    came in the same piece.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._line: int | None = 0  # start of a possible call in `buffered`, if any
        self.buffered = ""

    @property
    def words(self) -> str:
        """The part of `buffered` before the call."""
        return self.buffered[: self._line]

    def feed(self, piece: str) -> Verdict:
        """Return the verdict after one more piece; after "text" nothing is held back any more."""
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
            # The next line, which may be in the same piece.
            self._line = end + 1


def detect(text: str, names: Collection[str]) -> Verdict:
    """Judge whether a line, optionally in a fence or tag, begins a call of a known tool.

    The fence is Markdown's, the tag the one that Qwen and Hermes models have learned.
    """
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
    # With the closing quote: one name may be the beginning of another.
    for name in names:
        if rest.startswith(f'"{name}"'):
            return DetectedCall(name, many)
    return "open" if any(f'"{name}"'.startswith(rest) for name in names) else "text"


def _could_be_fence(text: str) -> bool:
    begun = text.lstrip()
    return any(fence.startswith(begun) for fence in ("```json", "<tool_call>"))
