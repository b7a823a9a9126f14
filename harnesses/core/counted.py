"""Numbers with the noun that they count."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return "1 turn" or "1,200 turns"; `plural` where it is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
