"""Tokenization of text as the index does it: words are letters and digits, case and accents are
ignored."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_BREAKS = {code: " " for code in range(128) if not chr(code).isalnum()}


def words(text: str) -> Sequence[str]:
    """Return the words of a text as FTS5's `unicode61` splits it."""
    if text.isascii():
        return text.translate(_BREAKS).split()
    found, word = [], ""
    for char in f"{text} ":
        # The token characters of `unicode61`, and combining marks (Mn) within a word.
        category = unicodedata.category(char)
        if category[0] in "LN" or category == "Co" or (word and category == "Mn"):
            word += char
        elif word:
            found.append(word)
            word = ""
    return found


def escape_like(text: str) -> str:
    """Return a text as it stands for itself in a LIKE pattern with the escape character `\\`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def fold(text: str) -> str:
    """Return a text in lower case, without accents."""
    return text.lower() if text.isascii() else fold_with_offsets(text)[0]


def fold_with_offsets(text: str) -> tuple[str, Sequence[int]]:
    """Return a text folded, and for each character of the result its index in the original."""
    if text.isascii():
        return text.lower(), range(len(text))
    plain: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text):
        for part in unicodedata.normalize("NFD", char.lower()):
            if not unicodedata.combining(part):
                plain.append(part)
                places.append(place)
    return "".join(plain), places
