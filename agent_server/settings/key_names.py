"""The names of API keys."""

from __future__ import annotations

import re

RESERVED = frozenset({"admin", "anonymous", "other", "terrarium"})
"""Names that the server itself uses for requests without a named key."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


def require_key_name(name: str) -> None:
    """Raise ValueError, with the reason, unless a key may be called `name`."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: letters, digits, dots, dashes and underscores only")
    if name in RESERVED:
        raise ValueError(f"{name} has a meaning already")
