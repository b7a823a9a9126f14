"""The prompts that each key has sent, and how much of the next it may be told to be cached.

An engine that shares its prefix cache between keys tells by `cached_tokens` what others have sent:
a key that guesses the beginning of another's prompt sees the number grow with each right word. So
of such an engine a key is told at most what its own earlier prompts explain.

The rule: at most the tokens of the longest earlier prompt of the same key, all of whose messages
stand unchanged at the beginning of this one, less `MARGIN`; nothing where there is none. Only
digests are held, and of each key only the last `MOST_PROMPTS`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

MARGIN = 16
"""Tokens that a chat template puts after the last message, to begin the answer: they need not stand
there in the next prompt, so they could be another key's. Templates have up to about ten."""

MOST_PROMPTS = 256
"""Prompts of one key that are remembered."""


def prefix_digests(body: Mapping[str, Any]) -> Sequence[bytes]:
    """Return the digest of a prompt's beginning up to each of its messages; a bare text has one.

    The model and the tools, which templates put before the messages, are in all of them.
    """
    head = {key: body[key] for key in ("model", "tools", "tool_choice") if key in body}
    state = blake2b(_encoded(head), digest_size=16)
    digests = []
    for message in body["messages"] if "messages" in body else [body.get("prompt")]:
        text = _encoded(message)
        state.update(b"%d:%b" % (len(text), text))
        digests.append(state.copy().digest())
    return digests


class PromptHistory:
    """The lengths of the prompts that each key has sent to one engine."""

    def __init__(self) -> None:
        self._sent: dict[str, OrderedDict[bytes, int]] = {}

    def cached_limit(self, key: str, digests: Sequence[bytes]) -> int:
        """Return how many tokens of a prompt the key `key` may be told to have been cached."""
        sent: Mapping[bytes, int] = self._sent.get(key, {})
        known = (sent[digest] for digest in reversed(digests) if digest in sent)
        return max(0, next(known, 0) - MARGIN)

    def add(self, key: str, digests: Sequence[bytes], tokens: int) -> None:
        """Record a prompt that the engine has read, of so many tokens."""
        sent = self._sent.setdefault(key, OrderedDict[bytes, int]())
        sent[digests[-1]] = tokens
        sent.move_to_end(digests[-1])
        if len(sent) > MOST_PROMPTS:
            sent.popitem(last=False)


def _encoded(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
