"""Removal of think blocks anywhere in an answer, for models whose engine does not separate them."""

from __future__ import annotations

import re

from llm.parsing.markdown_code import CodeSplitter
from terrarium.thinking import CLOSING_TAG, OPENING_TAG, Split, certain_length

_EITHER_TAG = re.compile(f"{OPENING_TAG.pattern}|{CLOSING_TAG.pattern}", re.IGNORECASE)


class ThoughtFilter:
    """Streaming filter that splits an answer into what may be shown and what was thought.

    A tag counts anywhere but in code, and an unmatched closing tag is dropped. Within a block, only
    a closing tag counts, wherever it stands.
    """

    def __init__(self) -> None:
        self._code = CodeSplitter()
        self._held = ""  # may be the beginning of a tag
        self._thinking = False

    def feed(self, text: str) -> Split:
        """Return the text that is certain now."""
        return self._split(text, is_last=False)

    def finish(self) -> Split:
        """Return what was held back, at the end of the stream."""
        return self._split("", is_last=True)

    def _split(self, text: str, *, is_last: bool) -> Split:
        shown = thought = ""
        while True:
            if not self._thinking:
                piece, text = self._show(text, is_last=is_last)
                shown += piece
                if not self._thinking:
                    return Split(shown, thought)
            text, self._held = self._held + text, ""
            certain = certain_length(text, is_last=is_last)
            closing = CLOSING_TAG.search(text[:certain])
            end = closing.start() if closing else certain
            thought += text[:end]
            if closing is None:
                self._held = text[end:]
                return Split(shown, thought)
            text, self._thinking = text[closing.end() :], False

    def _show(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """Return the visible part of a text; if a block opens in it, also the text after the
        tag."""
        segments = self._code.feed(text) + (self._code.finish() if is_last else [])
        shown = ""
        for index, segment in enumerate(segments):
            if segment.is_code:
                shown, self._held = shown + self._held + segment.text, ""
                continue
            prose, self._held = self._held + segment.text, ""
            while tag := _EITHER_TAG.search(prose[: certain_length(prose, is_last=is_last)]):
                shown, prose = shown + prose[: tag.start()], prose[tag.end() :]
                if OPENING_TAG.fullmatch(tag[0]):
                    self._thinking = True
                    later = "".join(each.text for each in segments[index + 1 :])
                    return shown, prose + later + self._code.take_held()
            certain = certain_length(prose, is_last=is_last)
            shown, self._held = shown + prose[:certain], prose[certain:]
        if is_last:
            shown, self._held = shown + self._held, ""
        return shown, ""
