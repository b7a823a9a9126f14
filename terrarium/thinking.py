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


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of text, split into what may be shown and what was thought."""

    shown: str = ""
    thought: str = ""


class ThinkSplitter:
    """Splits a stream of text, however its pieces cut the tags.

    A tag counts anywhere and an unmatched closing tag is dropped: no reasoning is to reach people.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False

    def feed(self, text: str) -> Split:
        """Return the text that is certain now; a possible beginning of a tag is held back."""
        if not self._held and not self._thinking and "<" not in text:
            return Split(text)  # the fast path of most pieces
        self._held += text
        return self._split(is_last=False)

    def finish(self) -> Split:
        """Return what was held back, at the end of the stream."""
        return self._split(is_last=True)

    def _split(self, *, is_last: bool) -> Split:
        shown, thought = "", ""
        certain = len(self._held) if is_last else _certain(self._held)
        while True:
            # Inside a block only a closing tag counts.
            match = (_CLOSE if self._thinking else _EITHER).search(self._held[:certain])
            end, after = match.span() if match else (certain, certain)
            text, self._held, certain = self._held[:end], self._held[after:], certain - after
            if self._thinking:
                thought += text
            else:
                shown += text
            if match is None:
                return Split(shown, thought)
            self._thinking = _CLOSE.fullmatch(match[0]) is None


class LeadingThoughts:
    """Splits off the think blocks at the beginning of a streamed text, however it is cut.

    Later tags are part of the text: it may be code, or speak of them. Line breaks directly after a
    block are dropped.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinking = self._has_thought = self._has_text = False

    def feed(self, text: str) -> Split:
        """Return the text that is certain now; a possible beginning of a tag is held back."""
        if self._has_text:
            return Split(text)
        self._held += text
        return self._split(is_last=False)

    def finish(self) -> Split:
        """Return what was held back, at the end of the stream."""
        return self._split(is_last=True)

    def _split(self, *, is_last: bool) -> Split:
        thought = ""
        while not self._has_text:
            if self._thinking:
                certain = len(self._held) if is_last else _certain(self._held)
                match = _CLOSE.search(self._held[:certain])
                end, after = match.span() if match else (certain, certain)
                thought, self._held = thought + self._held[:end], self._held[after:]
                if match is None:
                    return Split("", thought)
                self._thinking, self._has_thought = False, True
            begun = self._held.lstrip()
            if match := _OPEN.match(begun):
                self._thinking, self._held = True, begun[match.end() :]
            elif not is_last and (not begun or _PREFIX.fullmatch(begun)):
                return Split("", thought)
            else:
                self._has_text = bool(begun)
                break
        shown, self._held = self._held, ""
        return Split(shown.lstrip("\n") if self._has_thought else shown, thought)


def _certain(held: str) -> int:
    """Return how many characters of a held text cannot be part of an incomplete tag."""
    # `<<think>` is incomplete, although it has a whole `<think>`: another `>` may follow.
    start = held.find("<", max(0, len(held) - _MAX_TAG_LENGTH))
    while start >= 0:
        if _PREFIX.fullmatch(held, start):
            return start
        start = held.find("<", start + 1)
    return len(held)


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
_PREFIX = _prefixes()
