"""The prompts that each key has sent, which limit the number of cached tokens it is told.

If an engine shares its prefix cache between keys, `cached_tokens` is a side channel: a key that
guesses the beginning of another key's prompt sees the number grow with each correct word. With such
an engine a key is told at most what its own earlier prompts explain.

The limit is the length of the longest earlier prompt of the same key whose messages are all an
unchanged prefix of this prompt, less `TEMPLATE_MARGIN`; 0 if there is none. Only digests are
stored, and only of the last `MAX_PROMPTS` prompts of each key.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

TEMPLATE_MARGIN = 16
"""Tokens that a chat template appends after the last message to begin the answer. The next prompt
need not have them in that place, so a cache hit on them could be due to another key. Templates have
up to about ten."""

MAX_PROMPTS = 256
"""Prompts remembered per key."""


def prefix_digests(body: Mapping[str, Any]) -> Sequence[bytes]:
    """Return the digests of a prompt up to and including each message; a bare text has one.

    The model and the tools, which templates render before the messages, are part of every digest.
    """
    head = {key: body[key] for key in ("model", "tools", "tool_choice") if key in body}
    state = blake2b(_encoded(head), digest_size=16)
    digests = []
    for message in body["messages"] if "messages" in body else [body.get("prompt")]:
        text = _encoded(message)
        # The length prefix makes the concatenation of messages unambiguous.
        state.update(b"%d:%b" % (len(text), text))
        digests.append(state.copy().digest())
    return digests


class PromptHistory:
    """The lengths in tokens of the prompts that each key has sent to one engine."""

    def __init__(self) -> None:
        self._sent: dict[str, OrderedDict[bytes, int]] = {}

    def cached_limit(self, key: str, digests: Sequence[bytes]) -> int:
        """Return the largest number of cached tokens to report to `key` for a prompt."""
        sent: Mapping[bytes, int] = self._sent.get(key, {})
        # The longest prefix comes first.
        known = (sent[digest] for digest in reversed(digests) if digest in sent)
        return max(0, next(known, 0) - TEMPLATE_MARGIN)

    def add(self, key: str, digests: Sequence[bytes], tokens: int) -> None:
        """Record a prompt of `tokens` tokens that the engine has read."""
        sent = self._sent.setdefault(key, OrderedDict[bytes, int]())
        sent[digests[-1]] = tokens
        sent.move_to_end(digests[-1])
        if len(sent) > MAX_PROMPTS:
            sent.popitem(last=False)


def _encoded(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
