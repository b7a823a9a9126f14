"""Addresses of pages in what people write."""

from __future__ import annotations

_TRAILING = ".,;:!?)]}'\""
_OPENING = {")": "(", "]": "[", "}": "{"}


def without_punctuation(address: str) -> str:
    """Return an address without the punctuation of the sentence around it.

    A closing bracket belongs to the address if it opens one too, as in `/wiki/Rust_(game)`.
    """
    end = len(address)
    # Counted once: a line of 64 KiB may consist of brackets.
    unopened = {each: address.count(each) - address.count(_OPENING[each]) for each in _OPENING}
    while end and (last := address[end - 1]) in _TRAILING:
        if last in unopened:
            if unopened[last] <= 0:
                break
            unopened[last] -= 1
        end -= 1
    return address[:end]
