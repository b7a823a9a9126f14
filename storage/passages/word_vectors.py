"""Vectors of English words, by which the similarity of two words is computed.

The table is part of the package; `benchmarks/word_vectors.py` makes it from GloVe. Its words are
stems of `storage.passages.words`.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from operator import mul


@dataclass(frozen=True, slots=True)
class WordVectors:
    """A table of word vectors, quantized to signed bytes.

    `table` has the vectors one after another, each of `dimensions` bytes and about the length
    `norm`. `places` has the row of each stem; the most frequent stem comes first.
    """

    places: Mapping[str, int]
    table: memoryview
    dimensions: int
    norm: float

    def vector(self, root: str) -> Sequence[int] | None:
        """Return the vector of a stem, None for one that is too rare to have one."""
        place = self.places.get(root)
        if place is None:
            return None
        return self.table[place * self.dimensions : (place + 1) * self.dimensions]

    def similarity(self, one: Sequence[int], other: Sequence[int]) -> float:
        """Return the cosine of two vectors, 0 where it is negative."""
        product: int = sum(map(mul, one, other))
        return max(0.0, product / (self.norm * self.norm))

    def rank(self, root: str) -> int:
        """Return how many stems are more frequent in English."""
        return self.places.get(root, len(self.places))


@cache
def word_vectors() -> WordVectors:
    """Return the table of the package, loaded once.

    The first line of the file has the dimensions and the norm, the second the stems; the rest are
    the bytes of the vectors.
    """
    packed = (files("storage.passages") / "word_vectors.gz").read_bytes()
    head, stems, table = gzip.decompress(packed).split(b"\n", 2)
    dimensions, norm = head.split()
    places = {stem: place for place, stem in enumerate(stems.decode().split())}
    return WordVectors(places, memoryview(table).cast("b"), int(dimensions), float(norm))
