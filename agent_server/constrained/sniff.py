"""Whether a text that has begun to stream is becoming a tool call."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Called:
    """The text is a call of this known tool; `many` when it is a list of calls."""

    name: str
    many: bool


Verdict = Called | Literal["open", "text"]
"""`open`: could still become a call; `text`: cannot."""

_FENCE = re.compile(r"\s*(?:```(?:json)?\s*)?")
_MARKS = ("{", '"name"', ":")


def sniff(text: str, names: Collection[str]) -> Verdict:
    """Judge the beginning of an answer, optionally in a Markdown fence, against known tools."""
    if _could_be_fence(text):
        return "open"
    match = _FENCE.match(text)
    rest = text[match.end() :] if match else text
    many = rest.startswith("[")
    if many:
        rest = rest[1:].lstrip()
    for mark in _MARKS:
        if not rest.startswith(mark):
            return "open" if mark.startswith(rest) else "text"
        rest = rest[len(mark) :].lstrip()
    for name in names:
        if rest.startswith(f'"{name}"'):
            return Called(name, many)
    return "open" if any(f'"{name}"'.startswith(rest) for name in names) else "text"


def _could_be_fence(text: str) -> bool:
    begun = text.lstrip()
    return "```json".startswith(begun)
