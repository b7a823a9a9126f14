"""A salt at the beginning of the prompts of a key: the embedded engine's prefix cache is shared by
all, and what it holds of one key's prompts must neither be counted nor be quicker for another.

llama.cpp finds a cached prompt by the tokens that two prompts have in common from the start; after
these it keeps runs of tokens only where the new prompt is the old one with some left out. With a
salt of its own, of a fixed length, no key's prompt begins as another's does, and none is another's
with some left out. Within a key nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

CACHE_SALT = "cache_salt"
"""The field of a request body with the salt of its key; the name is vLLM's, which takes it."""

DIGITS = 10
"""Length of the salt in a prompt: few tokens, which a model makes nothing of."""


def cache_salt(key: str) -> str:
    """Return the salt of the key named `key`: 43 characters or more, as vLLM recommends."""
    return sha256(b"terrarium prefix cache\0" + key.encode()).hexdigest()


def add_salt(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body for llama.cpp: with its salt first in the prompt, and without the field.

    A bare text is continued as it stands, so it has no salt; nothing of it is read from the cache.
    """
    asked = dict(body)
    salt = asked.pop(CACHE_SALT, None)
    if salt is None:
        return asked
    if "messages" not in asked:
        return {**asked, "cache_prompt": False}
    text = f"{int(salt, 16) % 10**DIGITS:0{DIGITS}d}\n"
    first, *others = asked["messages"]
    content = first.get("content")
    if first["role"] != "system" and (asked.get("tools") or not content):
        # Chat templates put tools before whatever is not the system message.
        others, first = asked["messages"], {"role": "system", "content": text}
    elif isinstance(content, str):
        first = {**first, "content": text + content}
    else:
        first = {**first, "content": [{"type": "text", "text": text}, *(content or ())]}
    return {**asked, "messages": [first, *others]}
