"""Sanitisation of untrusted text for a terminal."""

from __future__ import annotations

import re

# C0 and C1 except newline and tab: escape sequences could move the cursor or retitle the window.
# Lone surrogates stand for undecodable bytes (PEP 383); printing one raises UnicodeEncodeError.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def strip_control_chars(text: str) -> str:
    """Replace control characters, which a terminal would interpret, and surrogates by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)
