"""Real lines of #ubuntu; tests/data/README.md has their source and licence."""

from __future__ import annotations

import re
from pathlib import Path

_SPOKEN = re.compile(rb"\[\d\d:\d\d\] (?:<[^>]+> | \* \S+ )(?P<text>.*)")
_FILE = Path(__file__).parents[1] / "data" / "ubuntu-600-lines.txt"


def spoken(count: int) -> list[bytes]:
    """Return the texts of the first `count` messages, as the bytes that were sent."""
    lines = _FILE.read_bytes().split(b"\n")
    texts = [match["text"] for line in lines if (match := _SPOKEN.match(line)) and match["text"]]
    assert len(texts) >= count
    return texts[:count]
