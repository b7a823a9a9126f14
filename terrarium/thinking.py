"""Think blocks: the reasoning at the beginning of a model's answer, where its engine has left it.

A block opens with <think>, <thinking> or <thought>, also in double brackets as <<THINK>>, and
closes with any of these words and a slash; case does not matter. A block that never closes hides
everything after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = "think|thinking|thought"
OPENING_TAG = re.compile(rf"<(?:{_NAMES})>|<<(?:{_NAMES})>>", re.IGNORECASE)
"""The opening tag of a block."""
CLOSING_TAG = re.compile(rf"</(?:{_NAMES})>|<</(?:{_NAMES})>>", re.IGNORECASE)
"""The closing tag of a block."""


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of text, split into what may be shown and what was thought."""

    shown: str = ""
    thought: str = ""


class ThinkSplitter:
    """Splits a stream of text into the think blocks that it begins with and the rest, however its
    pieces cut the tags.

    Blanks before a block and line breaks after it are dropped. Once other text has begun, nothing
    is a tag: an answer may mention <think>.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False
        self._after_block = False
        self._answering = False

    def feed(self, text: str) -> Split:
        """Return the text that is certain now; a possible beginning of a tag is held back."""
        if self._answering:
            return Split(text)
        self._held += text
        return self._split(is_last=False)

    def finish(self) -> Split:
        """Return what was held back, at the end of the stream."""
        return self._split(is_last=True)

    def _split(self, *, is_last: bool) -> Split:
        thought = ""
        while self._held and not self._answering:
            if self._thinking:
                piece, closed = self._until_closed(is_last=is_last)
                thought += piece
                if not closed:
                    return Split("", thought)
                self._thinking, self._after_block = False, True
            else:
                if self._after_block:
                    self._held = self._held.lstrip("\n")
                begun = self._held.lstrip()
                if opening := OPENING_TAG.match(begun):
                    self._held, self._thinking = begun[opening.end() :], True
                elif not is_last and may_become_tag(begun):
                    return Split("", thought)
                else:
                    self._answering = True
        shown, self._held = self._held, ""
        return Split(shown, thought)

    def _until_closed(self, *, is_last: bool) -> tuple[str, bool]:
        """Take the text of the open block from what is held, and whether it closes there."""
        certain = certain_length(self._held, is_last=is_last)
        closing = CLOSING_TAG.search(self._held[:certain])
        end = closing.start() if closing else certain
        text, self._held = self._held[:end], self._held[closing.end() if closing else end :]
        return text, closing is not None


def certain_length(text: str, *, is_last: bool = False) -> int:
    """Return how many characters at the beginning of `text` are in no incomplete tag at its end;
    all of them if it `is_last`."""
    # `<<think>` is incomplete, although it has a whole `<think>`: another `>` may follow.
    start = -1 if is_last else text.find("<", max(0, len(text) - _MAX_TAG_LENGTH))
    while start >= 0:
        if may_become_tag(text[start:]):
            return start
        start = text.find("<", start + 1)
    return len(text)


def may_become_tag(text: str) -> bool:
    """Return whether a text is empty or a proper prefix of a tag."""
    return not text or _PREFIX.fullmatch(text) is not None


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


_MAX_TAG_LENGTH = len("<</thinking>>")
_PREFIX = _prefixes()
