"""Streams: a text in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import strategies as st

CUTS = st.lists(st.integers(min_value=0), max_size=8)
"""Places at which a text is cut; too large ones count from its beginning again."""


def pieces_of(text: str, cuts: Sequence[int]) -> list[str]:
    """Return the text in pieces."""
    marks = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(marks)]
