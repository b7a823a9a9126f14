"""Splitting of a stream of Markdown into prose and code.

What a model puts into code is meant as it stands, so whatever repairs answers repairs prose only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"[ \t]*+(?P<marks>`{3,}+|~{3,}+)[^`\n]*+\n")
_FENCE_BEGUN = re.compile(r"[ \t]*+(?:`{1,2}|~{1,2}|(?:`{3,}+|~{3,}+)[^`\n]*+)?")
_SPECIAL = re.compile(r"\n|`++")
_MAX_SPAN_LENGTH = 2_000  # characters of inline code that are held back until it is closed


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the stream, either prose or code with its marks."""

    text: str
    is_code: bool


class CodeSplitter:
    """Streaming splitter, however the stream is chunked. Its segments joined are the stream.

    As in CommonMark, a fence is closed by a line with at least as many marks of its kind, inline
    code by a run of exactly as many backticks; but on the same line, or a stray backtick would make
    code of what follows.
    """

    def __init__(self) -> None:
        self._held = ""
        self._fence = ""  # the marks that opened the current block, "" outside one
        self._line_begins = True

    def feed(self, text: str) -> list[Segment]:
        """Return the segments that are certain."""
        self._held += text
        return self._advance(final=False)

    def finish(self) -> list[Segment]:
        """Return the segments still held back."""
        return self._advance(final=True)

    def take_held(self) -> str:
        """Return the text held back, and start afresh, at the beginning of a line."""
        held, self._held, self._fence, self._line_begins = self._held, "", "", True
        return held

    def _advance(self, *, final: bool) -> list[Segment]:
        found: list[Segment] = []
        while self._held:
            if self._fence:
                length, is_code = self._in_fence(final=final), True
            else:
                length, is_code = self._next(final=final)
            if not length:
                break
            text, self._held = self._held[:length], self._held[length:]
            self._line_begins = text.endswith("\n")
            found.append(Segment(text, is_code))
        return found

    def _in_fence(self, *, final: bool) -> int:
        """Return the length of the code that is certain; the closing line ends the block."""
        line, newline, _ = self._held.partition("\n")
        if self._line_begins and not line.strip().strip(self._fence[0]):
            if not newline and not final:
                return 0
            if len(line.strip()) >= len(self._fence):
                self._fence = ""
        return len(line) + len(newline)

    def _next(self, *, final: bool) -> tuple[int, bool]:
        """Return the length of the next segment outside a block (0: undecided), and if code."""
        if self._line_begins:
            if opening := _FENCE.match(self._held):
                self._fence = opening["marks"]
                return opening.end(), True
            if not final and _FENCE_BEGUN.fullmatch(self._held):
                return 0, False
        special = _SPECIAL.search(self._held)
        if special is None:
            return len(self._held), False
        if special[0] == "\n":
            return special.end(), False
        if special.start():
            return special.start(), False
        ticks = special.end()  # inline code, if as many close it on this line
        line, newline, _ = self._held[:_MAX_SPAN_LENGTH].partition("\n")
        decided = final or bool(newline) or len(line) == _MAX_SPAN_LENGTH
        closing = re.compile(rf"(?<!`)`{{{ticks}}}(?!`)").search(line, ticks)
        if closing and (decided or closing.end() < len(line)):
            return closing.end(), True
        return (ticks, False) if decided else (0, False)
