"""Printing of untrusted text on a terminal."""

from __future__ import annotations

import re

# C0 and C1 but newline and tab: escape sequences could move the cursor or retitle the window.
# Surrogates stand for bytes that were no UTF-8, and cannot be printed.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def strip_control_chars(text: str) -> str:
    """Replace the control characters that a terminal would obey by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)
