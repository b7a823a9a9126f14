"""Addresses of pages in what people write."""

from __future__ import annotations

_TRAILING = ".,;:!?)]}'\""
_OPENING = {")": "(", "]": "[", "}": "{"}


def without_punctuation(address: str) -> str:
    """Return an address without the punctuation of the sentence around it.

    A closing bracket belongs to the address if it opens one too, as in `/wiki/Rust_(game)`.
    """
    while address[-1:] and address[-1] in _TRAILING:
        opening = _OPENING.get(address[-1])
        if opening and address.count(opening) >= address.count(address[-1]):
            break
        address = address[:-1]
    return address
