"""Think blocks: a model's reasoning in the text of its answer, where its engine has left it.

A block opens with <think>, <thinking> or <thought>, also in double brackets as <<THINK>>, and
closes with any of these words and a slash; case does not matter. A block that never closes hides
everything after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from terrarium.markdown_code import CodeSplitter

_NAMES = "think|thinking|thought"
_OPENING_TAG = re.compile(rf"<(?:{_NAMES})>|<<(?:{_NAMES})>>", re.IGNORECASE)
_CLOSING_TAG = re.compile(rf"</(?:{_NAMES})>|<</(?:{_NAMES})>>", re.IGNORECASE)
_EITHER_TAG = re.compile(f"{_OPENING_TAG.pattern}|{_CLOSING_TAG.pattern}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of text, split into what may be shown and what was thought."""

    shown: str = ""
    thought: str = ""


class ThinkSplitter:
    """Splits a stream of text into think blocks and the rest, however its pieces cut the tags.

    Blanks before a block that the text begins with are dropped, and line breaks after it. In the
    text after that nothing is a tag, as an answer may mention <think>; with `anywhere` a tag is one
    everywhere but in code, and a closing tag without a block is dropped.
    """

    def __init__(self, *, anywhere: bool = False) -> None:
        self._code = CodeSplitter() if anywhere else None
        self._held = ""
        self._thinking = False
        self._after_block = False
        self._answering = False

    def feed(self, text: str) -> Split:
        """Return the text that is certain now; a possible beginning of a tag is held back."""
        if self._answering and self._code is None:
            return Split(text)
        return self._split(text, is_last=False)

    def finish(self) -> Split:
        """Return what was held back, at the end of the stream."""
        return self._split("", is_last=True)

    def _split(self, text: str, *, is_last: bool) -> Split:
        shown = thought = ""
        while True:
            if self._thinking:
                piece, text, closed = self._until_closed(text, is_last=is_last)
                thought += piece
                if not closed:
                    return Split(shown, thought)
            elif self._answering:
                piece, text = self._answer(text, is_last=is_last)
                shown += piece
                if not self._thinking:
                    return Split(shown, thought)
            else:
                text, self._held = self._held + text, ""
                text = text.lstrip("\n") if self._after_block else text
                begun = text.lstrip()
                if opening := _OPENING_TAG.match(begun):
                    text, self._thinking, self._after_block = begun[opening.end() :], True, True
                elif not is_last and _may_become_tag(begun):
                    self._held = text
                    return Split(shown, thought)
                else:
                    self._answering = True

    def _until_closed(self, text: str, *, is_last: bool) -> tuple[str, str, bool]:
        """Return the text of the open block, the text after it, and whether it closes."""
        text, self._held = self._held + text, ""
        certain = _certain_length(text, is_last=is_last)
        closing = _CLOSING_TAG.search(text[:certain])
        if closing is None:
            self._held = text[certain:]
            return text[:certain], "", False
        self._thinking = False
        return text[: closing.start()], text[closing.end() :], True

    def _answer(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """Return the visible part of a text; if a block opens in it, also the text after the
        tag."""
        if self._code is None:
            return text, ""
        segments = self._code.feed(text) + (self._code.finish() if is_last else [])
        shown = ""
        for index, segment in enumerate(segments):
            if segment.is_code:
                shown, self._held = shown + self._held + segment.text, ""
                continue
            prose, self._held = self._held + segment.text, ""
            while tag := _EITHER_TAG.search(prose[: _certain_length(prose, is_last=is_last)]):
                shown, prose = shown + prose[: tag.start()], prose[tag.end() :]
                if _OPENING_TAG.fullmatch(tag[0]):
                    self._thinking = True
                    later = "".join(each.text for each in segments[index + 1 :])
                    return shown, prose + later + self._code.take_held()
            certain = _certain_length(prose, is_last=is_last)
            shown, self._held = shown + prose[:certain], prose[certain:]
        if is_last:
            shown, self._held = shown + self._held, ""
        return shown, ""


def _certain_length(text: str, *, is_last: bool) -> int:
    """Return how many characters at the beginning of `text` are in no incomplete tag at its end;
    all of them if it `is_last`."""
    # `<<think>` is incomplete, although it has a whole `<think>`: another `>` may follow.
    start = -1 if is_last else text.find("<", max(0, len(text) - _MAX_TAG_LENGTH))
    while start >= 0:
        if _may_become_tag(text[start:]):
            return start
        start = text.find("<", start + 1)
    return len(text)


def _may_become_tag(text: str) -> bool:
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
