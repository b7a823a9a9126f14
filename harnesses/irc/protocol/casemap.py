"""Which names are the same name: CASEMAPPING (https://modern.ircdocs.horse/#casemapping-parameter)."""

from __future__ import annotations

import string
from collections.abc import Callable

Casemap = Callable[[str], str]
"""Turns a nick or channel into the form in which equal names are equal strings."""

_ASCII = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_STRICT = {**_ASCII, **str.maketrans("[]\\", "{}|")}
_RFC1459 = {**_STRICT, **str.maketrans("~", "^")}


def casemap(name: str) -> Casemap:
    """The folding that a server's CASEMAPPING value stands for.

    Unknown values are those of servers with Unicode nicks; these fold as Unicode does.
    """
    return _KNOWN.get(name.lower(), str.casefold)


def _ascii(name: str) -> str:
    return name.translate(_ASCII)


def _strict(name: str) -> str:
    return name.translate(_STRICT)


def _rfc1459(name: str) -> str:
    return name.translate(_RFC1459)


_KNOWN: dict[str, Casemap] = {
    "ascii": _ascii,
    "strict-rfc1459": _strict,
    "rfc1459": _rfc1459,
}
