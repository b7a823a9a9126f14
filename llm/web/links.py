"""Addresses of pages in what people write."""

from __future__ import annotations

import re

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


_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_HOST = re.compile(r"[^/?]*")
_WITH_SCHEME = re.compile(rf"{_SCHEME.pattern}[^\s<>\"]+", re.IGNORECASE)


def address_key(address: str) -> str:
    """Return an address in the form in which two that open the same page are equal: without scheme
    and fragment, the host in lower case.

    Nothing else is normalised: what a server could tell apart would carry a message to it.
    """
    rest = _SCHEME.sub("", address, count=1).partition("#")[0].removesuffix("/")
    return _HOST.sub(lambda host: host[0].lower(), rest, count=1)


def addresses_in(text: str) -> set[str]:
    """Return the keys of the addresses in a text; any word, `example.org/notes`, may be one."""
    found = [*_WITH_SCHEME.findall(text), *(word.lstrip("<([{\"'") for word in text.split())]
    return {address_key(without_punctuation(each)) for each in found}


def web_addresses(text: str) -> list[str]:
    """Return the addresses in a text that have a scheme, as they are written there."""
    return [without_punctuation(each) for each in _WITH_SCHEME.findall(text)]


def has_address(text: str) -> bool:
    """Return whether a text has an address with its scheme."""
    return _WITH_SCHEME.search(text) is not None
