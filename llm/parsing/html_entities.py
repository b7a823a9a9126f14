"""Decoding of HTML entities that a small model writes for characters: `It&#39;s` for "It's"."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from llm.messages.message import Message

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_ENTITY_BEGUN = re.compile(r"&(?:#[xX]?[0-9a-fA-F]{0,7}|[A-Za-z][A-Za-z0-9]{0,30})?\Z")


class HtmlEntityDecoder:
    """Streaming decoder of the entities in the prose of one answer; `prompt` is what the model was
    given.

    Entities that occur in the prompt, which are quoted from the log or the question, are left
    unchanged, and so are those that stand for control or other unprintable characters.
    """

    def __init__(self, prompt: Sequence[Message] = ()) -> None:
        self._prompt = prompt
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the decoded text, without an end that may be the beginning of an entity."""
        self._held += text
        begun = _ENTITY_BEGUN.search(self._held)
        certain = begun.start() if begun else len(self._held)
        text, self._held = self._held[:certain], self._held[certain:]
        return _ENTITY.sub(self._decode, text)

    def pass_code(self, code: str) -> str:
        """Return the text still held back, and code as it stands."""
        return self.finish() + code

    def finish(self) -> str:
        """Return the text still held back."""
        held, self._held = self._held, ""
        return held

    def _decode(self, match: re.Match[str]) -> str:
        character = html.unescape(match[0]).replace("\xa0", " ")
        if not character or not character.isprintable() or self._is_quoted(match[0]):
            return match[0]
        return character

    def _is_quoted(self, entity: str) -> bool:
        """Return whether the prompt contains this entity."""
        return any(
            entity in message["content"]
            for message in self._prompt
            if isinstance(message.get("content"), str)
        )
