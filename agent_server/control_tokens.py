"""Keeps people's words from being read as control tokens.

llama.cpp reads `<|im_end|>` in a message as the token that ends the message: whoever types it on
IRC could go on as the system. A space of no width inside the mark makes it plain words again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MARK, HARMLESS = "<|", "<\u200b|"


def defused(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat body whose messages hold no control tokens."""
    if "messages" not in body:
        return dict(body)
    return {**body, "messages": [_message(message) for message in body["messages"]]}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": _plain(content)}
    if isinstance(content, list):
        return {**message, "content": [_part(part) for part in content]}
    return dict(message)


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    return {**part, "text": _plain(part["text"])} if "text" in part else dict(part)


def _plain(text: str) -> str:
    return text.replace(MARK, HARMLESS)
