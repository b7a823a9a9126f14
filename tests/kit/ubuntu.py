"""Real lines of #ubuntu; their source and licence are in tests/data/README.md."""

from __future__ import annotations

import re
from pathlib import Path

_SPOKEN = re.compile(rb"\[\d\d:\d\d\] (?:<[^>]+> | \* \S+ )(?P<text>.*)")
_FILE = Path(__file__).parents[1] / "data" / "ubuntu-600-lines.txt"


def spoken(count: int) -> list[bytes]:
    """What people said in `count` lines, as the bytes that they sent."""
    lines = _FILE.read_bytes().split(b"\n")
    texts = [match["text"] for line in lines if (match := _SPOKEN.match(line)) and match["text"]]
    assert len(texts) >= count
    return texts[:count]
