"""A salt per key at the start of prompts, against leaks through a shared prefix cache.

All keys share the prefix cache of the embedded engine. What it holds of one key's prompts must
neither show in the counts of another key nor make its answers faster (a timing side channel).

llama.cpp finds a cached prompt by the tokens that two prompts have in common from the start; beyond
these it reuses runs of tokens only where the new prompt is the old one with parts left out. With
distinct salts of one fixed length, no key's prompt starts like another key's, and none is another's
with parts left out. Within a key nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

CACHE_SALT = "cache_salt"
"""The field of a request body with the salt of its key, named as in vLLM, which supports it."""

SALT_DIGITS = 10
"""Length of the salt in a prompt: few tokens, which mean nothing to a model."""


def cache_salt(key: str) -> str:
    """Return the salt of the key named `key`, longer than the 43 characters vLLM recommends."""
    return sha256(b"terrarium prefix cache\0" + key.encode()).hexdigest()


def add_salt(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body for llama.cpp: the salt moves from its field to the start of the prompt.

    A bare text has to be continued verbatim, so it gets no salt; the cache is not used for it.
    """
    asked = dict(body)
    salt = asked.pop(CACHE_SALT, None)
    if salt is None:
        return asked
    if "messages" not in asked:
        return {**asked, "cache_prompt": False}
    text = f"{int(salt, 16) % 10**SALT_DIGITS:0{SALT_DIGITS}d}\n"
    first, *others = asked["messages"]
    content = first.get("content")
    if first["role"] != "system" and (asked.get("tools") or not content):
        # Chat templates put the tools before all messages but the system's, so the salt needs a
        # system message to come first.
        others, first = asked["messages"], {"role": "system", "content": text}
    elif isinstance(content, str):
        first = {**first, "content": text + content}
    else:
        first = {**first, "content": [{"type": "text", "text": text}, *(content or ())]}
    return {**asked, "messages": [first, *others]}
