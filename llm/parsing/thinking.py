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


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of text, parted: what may be shown and what was thought."""

    shown: str = ""
    thought: str = ""


class ThinkSplitter:
    """Parts a stream, whatever way its pieces cut the tags."""

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False

    def feed(self, text: str) -> Split:
        """The part of the stream that is certain now; the beginning of a tag is held back."""
        self._held += text
        return self._split(self._certain())

    def finish(self) -> Split:
        """What was held back: nothing comes that could make a longer tag of it."""
        return self._split(len(self._held))

    def _split(self, certain: int) -> Split:
        """The first `certain` characters of what is held, which cut no tag."""
        text, self._held = self._held[:certain], self._held[certain:]
        shown, thought = "", ""
        while match := self._tag().search(text):
            before, text = text[: match.start()], text[match.end() :]
            shown, thought = self._add(before, shown, thought)
            self._thinking = _CLOSE.fullmatch(match[0]) is None
        shown, thought = self._add(text, shown, thought)
        return Split(shown, thought)

    def _tag(self) -> re.Pattern[str]:
        """Inside a block only its end matters; outside, a stray end is dropped like a tag."""
        return _CLOSE if self._thinking else _EITHER

    def _add(self, text: str, shown: str, thought: str) -> tuple[str, str]:
        return (shown, thought + text) if self._thinking else (shown + text, thought)

    def _certain(self) -> int:
        """How much of what is held cannot be the beginning of a tag, nor of a longer one: to
        `<<think>` one more `>` may come."""
        tail = max(0, len(self._held) - _LONGEST)
        start = self._held.find("<", tail)
        while start >= 0:
            if _PREFIX.fullmatch(self._held, start):
                return start
            start = self._held.find("<", start + 1)
        return len(self._held)


def _prefixes() -> re.Pattern[str]:
    """Matches every beginning of a tag."""
    tags = [
        f"{a}{slash}{name}{b}"
        for a, b in (("<", ">"), ("<<", ">>"))
        for slash in ("", "/")
        for name in _NAMES.split("|")
    ]
    beginnings = {tag[:length] for tag in tags for length in range(1, len(tag))}
    return re.compile("|".join(map(re.escape, sorted(beginnings, key=len))), re.IGNORECASE)


_EITHER = re.compile(f"{_OPEN.pattern}|{_CLOSE.pattern}", re.IGNORECASE)
_PREFIX = _prefixes()
