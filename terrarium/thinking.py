"""Think blocks: the reasoning in a model's output, separated from the text for people.

A block opens with <think>, <thinking> or <thought>, also in double brackets as <<THINK>>, and
closes with any of these words and a slash; case does not matter. A block that never closes hides
everything after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = "think|thinking|thought"
_OPEN = re.compile(rf"<(?:{_NAMES})>|<<(?:{_NAMES})>>", re.IGNORECASE)
_CLOSE = re.compile(rf"</(?:{_NAMES})>|<</(?:{_NAMES})>>", re.IGNORECASE)
_MAX_TAG_LENGTH = len("<</thinking>>")
_BLANK = ("", " ", "\t", "\n")


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of text, split into what may be shown and what was thought."""

    shown: str = ""
    thought: str = ""


class ThinkSplitter:
    """Splits a stream of text, however its pieces cut the tags.

    By default a tag counts anywhere and an unmatched closing tag is dropped: no reasoning is to
    reach people. With `at_line_start`, for programs that want the text as the model wrote it, a
    block opens only at the beginning of a line, so that prose may mention <think>; an unmatched
    closing tag is kept, and line breaks directly after a block are dropped.
    """

    def __init__(self, *, at_line_start: bool = False) -> None:
        self._by_line = at_line_start
        self._held = ""
        self._thinking = False
        self._line_start = True  # the held text begins a line
        self._trim = False  # a block has just ended: line breaks are dropped

    def feed(self, text: str) -> Split:
        """Return the text that is certain now; a possible beginning of a tag is held back."""
        if self._is_plain(text):
            self._line_start = False
            return Split(text)
        self._held += text
        return self._split(is_last=False)

    def finish(self) -> Split:
        """Return what was held back, at the end of the stream."""
        return self._split(is_last=True)

    def _is_plain(self, text: str) -> bool:
        """Return whether `text` cannot be part of a tag or block: the fast path of most pieces."""
        if self._held or self._thinking or self._trim or "<" in text:
            return False
        # At the end, a line break or blank may be what a tag at the beginning of a line follows.
        return not self._by_line or text[-1:] not in _BLANK

    def _split(self, *, is_last: bool) -> Split:
        shown, thought = "", ""
        while True:
            # Computed again after each tag, as other tags count inside a block than outside.
            certain = len(self._held) if is_last else self._certain()
            match = self._search(self._held[:certain])
            end, after = match.span() if match else (certain, certain)
            text, self._held = self._held[:end], self._held[after:]
            if self._thinking:
                thought += text
            else:
                shown += self._show(text)
            if match is None:
                return Split(shown, thought)
            self._thinking = _CLOSE.fullmatch(match[0]) is None
            self._trim = self._by_line and not self._thinking

    def _search(self, text: str) -> re.Match[str] | None:
        """Find the next tag that counts: inside a block only a closing one."""
        if self._thinking:
            return _CLOSE.search(text)
        if not self._by_line:
            return _EITHER.search(text)
        return (_LINE_OPEN if self._line_start else _NEXT_LINE_OPEN).search(text)

    def _show(self, text: str) -> str:
        if self._trim:
            stripped = text.lstrip("\n")
            # Line breaks that are dropped still make the text after them begin a line.
            self._line_start = self._line_start or stripped != text
            text = stripped
        if text:
            self._trim = False
            self._line_start = text.endswith("\n")
        return text

    def _certain(self) -> int:
        """Return how many of the held characters cannot be part of an incomplete tag."""
        # `<<think>` is incomplete, although it has a whole `<think>`: another `>` may follow.
        if self._by_line and not self._thinking:
            return self._certain_lines()
        tail = max(0, len(self._held) - _MAX_TAG_LENGTH)
        start = self._held.find("<", tail)
        while start >= 0:
            if _PREFIX.fullmatch(self._held, start):
                return start
            start = self._held.find("<", start + 1)
        return len(self._held)

    def _certain_lines(self) -> int:
        """Return the same where tags count only at the beginning of a line, after any blanks."""
        start = self._held.rfind("\n") + 1
        if not start and not self._line_start:  # in the middle of a line no block can open
            return len(self._held)
        begun = self._held[start:].lstrip(" \t")
        return start if not begun or _PREFIX.fullmatch(begun) else len(self._held)


def _prefixes() -> re.Pattern[str]:
    """Compile a pattern that matches every proper prefix of a tag."""
    tags = [
        f"{a}{slash}{name}{b}"
        for a, b in (("<", ">"), ("<<", ">>"))
        for slash in ("", "/")
        for name in _NAMES.split("|")
    ]
    beginnings = {tag[:length] for tag in tags for length in range(1, len(tag))}
    return re.compile("|".join(map(re.escape, sorted(beginnings, key=len))), re.IGNORECASE)


_EITHER = re.compile(f"{_OPEN.pattern}|{_CLOSE.pattern}", re.IGNORECASE)
# `\A` only in the second one, for held text that begins a line: else its start is mid-line.
_NEXT_LINE_OPEN = re.compile(rf"(?<=\n)[ \t]*(?:{_OPEN.pattern})", re.IGNORECASE)
_LINE_OPEN = re.compile(rf"(?:\A|(?<=\n))[ \t]*(?:{_OPEN.pattern})", re.IGNORECASE)
_PREFIX = _prefixes()
