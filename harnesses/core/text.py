"""Text for people: counts with their noun, and untrusted text for a terminal."""

from __future__ import annotations

import re

# C0 and C1 except newline and tab: escape sequences could move the cursor or retitle the window.
# Lone surrogates stand for undecodable bytes (PEP 383); printing one raises UnicodeEncodeError.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def strip_control_chars(text: str) -> str:
    """Replace control characters, which a terminal would interpret, and surrogates by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a text such as "1 turn" or "1,200 turns"; pass an irregular `plural`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
