"""Decoding of HTML entities that a small model writes for characters: `It&#39;s` for "It's"."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from llm.messages.message import Message

_MARK = re.compile(
    r"(?P<entity>&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});)"
    r"|(?P<ticks>`+)|(?P<newline>\n)"
)
_MARK_BEGUN = re.compile(r"(?:&(?:#[xX]?[0-9a-fA-F]{0,7}|[A-Za-z][A-Za-z0-9]{0,30})?|`+)\Z")
_FENCE = 3  # backticks that open a multi-line code block; fewer are inline code


class HtmlEntityDecoder:
    """Streaming decoder of the entities in one answer; `prompt` is what the model was given.

    Code between backticks is left unchanged, and so are entities that occur in the prompt, which
    are quoted from the log or the question. Entities that stand for control or other unprintable
    characters are not decoded.
    """

    def __init__(self, prompt: Sequence[Message] = ()) -> None:
        self._prompt = prompt
        self._held = ""
        self._code = 0  # number of backticks that opened the current code, 0 outside code

    def feed(self, text: str) -> str:
        """Return the decoded text, without an end that may be the beginning of an entity."""
        self._held += text
        begun = _MARK_BEGUN.search(self._held)
        certain = begun.start() if begun else len(self._held)
        text, self._held = self._held[:certain], self._held[certain:]
        return _MARK.sub(self._decode, text)

    def finish(self) -> str:
        """Return the text still held back."""
        held, self._held = self._held, ""
        return held

    def _decode(self, match: re.Match[str]) -> str:
        ticks = len(match["ticks"] or "")
        if ticks and self._code in (0, ticks):
            self._code = 0 if self._code else ticks
        elif match["newline"] and self._code < _FENCE:
            # Inline code ends with its line: a stray backtick must not switch decoding off.
            self._code = 0
        elif match["entity"] and not self._code and not self._is_quoted(match[0]):
            character = html.unescape(match[0]).replace("\xa0", " ")
            return character if character and character.isprintable() else match[0]
        return match[0]

    def _is_quoted(self, entity: str) -> bool:
        """Return whether the prompt contains this entity."""
        return any(
            entity in message["content"]
            for message in self._prompt
            if isinstance(message.get("content"), str)
        )
