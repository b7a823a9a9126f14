"""Formatting of counts with their noun."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a text such as "1 turn" or "1,200 turns"; pass an irregular `plural`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
