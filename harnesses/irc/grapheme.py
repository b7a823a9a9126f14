"""Where a text may be cut without breaking what a reader sees as one character.

The rules of Unicode Standard Annex 29 that matter in chat: marks, joined emoji, skin tones,
flags, Hangul. Python's own tables are used, so no package is needed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_JOINER = "\u200d"


def clusters(text: str) -> Iterator[str]:
    """Yield the grapheme clusters of `text`; joined they are `text` again."""
    start = flags = 0
    for index in range(1, len(text)):
        before, after = text[index - 1], text[index]
        flags = flags + 1 if _is_flag(before) else 0
        if not _sticks(before, after, flags):
            yield text[start:index]
            start = index
    if text:
        yield text[start:]


def _sticks(before: str, after: str, flags: int) -> bool:
    if after < "\u0300":
        return False  # all of ASCII and Latin-1, quickly; our texts have no CRLF
    return (
        _extends(after)
        or (before == _JOINER and unicodedata.category(after) == "So")
        or (_is_flag(after) and flags % 2 == 1)
        or _is_hangul_syllable(before, after)
    )


def _extends(character: str) -> bool:
    return (
        unicodedata.category(character) in ("Mn", "Me", "Mc")
        or character == _JOINER
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= character <= "\U000e007f"  # tags of subdivision flags
    )


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _is_hangul_syllable(before: str, after: str) -> bool:
    leading = "\u1100" <= before <= "\u115f"
    vowel = "\u1160" <= before <= "\u11a7" or _has_no_final(before)
    final = "\u11a8" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3"
    if "\u1160" <= after <= "\u11a7":
        return leading or vowel
    if "\u11a8" <= after <= "\u11ff":
        return vowel or final
    return leading and ("\u1100" <= after <= "\u115f" or "\uac00" <= after <= "\ud7a3")


def _has_no_final(character: str) -> bool:
    return "\uac00" <= character <= "\ud7a3" and (ord(character) - 0xAC00) % 28 == 0
