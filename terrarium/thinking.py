"""Think blocks: what a model says to itself, kept apart from what it says to people.

A block opens with <think>, <thinking>, <thought> or <<THINK>> and closes with the same word and a
slash. One that never closes hides all that follows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = "think|thinking|thought"
_OPEN = re.compile(rf"<(?:{_NAMES})>|<<(?:{_NAMES})>>", re.IGNORECASE)
_CLOSE = re.compile(rf"</(?:{_NAMES})>|<</(?:{_NAMES})>>", re.IGNORECASE)
_LONGEST = len("<</thinking>>")
_BLANK = ("", " ", "\t", "\n")


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of text, parted: what may be shown and what was thought."""

    shown: str = ""
    thought: str = ""


class ThinkSplitter:
    """Parts a stream of text, whatever way its pieces cut the tags.

    A tag counts wherever it stands, and an end without a beginning is dropped: nothing of a thought
    reaches people. With `at_line_start`, for programs that want the text as the model wrote it, a
    block opens at the beginning of a line only, so that prose may speak of <think>; an end without
    a beginning stays, and line breaks after a block are dropped with it.
    """

    def __init__(self, *, at_line_start: bool = False) -> None:
        self._by_line = at_line_start
        self._held = ""
        self._thinking = False
        self._line_start = True  # of the text that is held
        self._trim = False  # of line breaks, which follow a block

    def feed(self, text: str) -> Split:
        """Return the part that is certain now; what may be the beginning of a tag is held back."""
        if self._is_plain(text):
            self._line_start = False
            return Split(text)
        self._held += text
        return self._split(is_last=False)

    def finish(self) -> Split:
        """Return what was held back: nothing comes that could make a longer tag of it."""
        return self._split(is_last=True)

    def _is_plain(self, text: str) -> bool:
        """Return whether `text` has nothing to do with tags, as nearly all that streams."""
        if self._held or self._thinking or self._trim or "<" in text:
            return False
        return not self._by_line or text[-1:] not in _BLANK

    def _split(self, *, is_last: bool) -> Split:
        shown, thought = "", ""
        while True:
            # What is certain depends on where it stands: it is judged again after each tag.
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
        """Find the next tag that counts. Inside a block that is only its end."""
        if self._thinking:
            return _CLOSE.search(text)
        if not self._by_line:
            return _EITHER.search(text)
        return (_LINE_OPEN if self._line_start else _NEXT_LINE_OPEN).search(text)

    def _show(self, text: str) -> str:
        if self._trim:
            stripped = text.lstrip("\n")
            self._line_start = self._line_start or stripped != text
            text = stripped
        if text:
            self._trim = False
            self._line_start = text.endswith("\n")
        return text

    def _certain(self) -> int:
        """Return how many characters held cannot begin a tag, nor a longer one: to `<<think>` one
        more `>` may come."""
        if self._by_line and not self._thinking:
            return self._certain_lines()
        tail = max(0, len(self._held) - _LONGEST)
        start = self._held.find("<", tail)
        while start >= 0:
            if _PREFIX.fullmatch(self._held, start):
                return start
            start = self._held.find("<", start + 1)
        return len(self._held)

    def _certain_lines(self) -> int:
        """The same where a tag stands at the beginning of a line, behind blanks or not."""
        start = self._held.rfind("\n") + 1
        if not start and not self._line_start:
            return len(self._held)
        begun = self._held[start:].lstrip(" \t")
        return start if not begun or _PREFIX.fullmatch(begun) else len(self._held)


def _prefixes() -> re.Pattern[str]:
    """Compile a pattern that matches every beginning of a tag."""
    tags = [
        f"{a}{slash}{name}{b}"
        for a, b in (("<", ">"), ("<<", ">>"))
        for slash in ("", "/")
        for name in _NAMES.split("|")
    ]
    beginnings = {tag[:length] for tag in tags for length in range(1, len(tag))}
    return re.compile("|".join(map(re.escape, sorted(beginnings, key=len))), re.IGNORECASE)


_EITHER = re.compile(f"{_OPEN.pattern}|{_CLOSE.pattern}", re.IGNORECASE)
_NEXT_LINE_OPEN = re.compile(rf"(?<=\n)[ \t]*(?:{_OPEN.pattern})", re.IGNORECASE)
_LINE_OPEN = re.compile(rf"(?:\A|(?<=\n))[ \t]*(?:{_OPEN.pattern})", re.IGNORECASE)
_PREFIX = _prefixes()
