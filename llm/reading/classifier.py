"""Kind, language and courtesy of a sentence, by multinomial logistic heads over its features.

The features are the embedding of the sentence, which knows what it means, and the hashed words and
pieces of words in it, which know how it is said. `weights.json` is made by `make train` from the
labelled sentences in `benchmarks/questions/reading`, whose README describes the kinds. Adding a
phrase is adding a line of data, in any language.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import mul
from pathlib import Path

DIMENSIONS = 384
"""Those of the embeddings that the weights were fitted to."""

BUCKETS = 16_384
"""The number of buckets into which words and pieces of words are hashed."""

PIECES_LENGTH = 2.0
"""The length of the vector of all pieces, beside that of the embedding, which is 1."""

WEIGHTS = Path(__file__).with_name("weights.json")

_WORD = re.compile(r"\w+|[^\w\s]")
_PIECE = 4  # letters


Rows = Mapping[str, Sequence[float]]
"""The weights of one multinomial logistic regression by label: those of the embedding, the bias,
and those of the buckets."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """The weights for kinds, languages and courtesies, and the mean embedding of the training
    data."""

    mean: Sequence[float]
    kinds: Rows
    languages: Rows
    courtesies: Rows

    def features(self, text: str, vector: Sequence[float]) -> Features:
        """Return the features of a sentence and its embedding as a query."""
        # The embeddings of all sentences point in nearly the same direction, so that what tells
        # them apart is the difference from the mean.
        centred = [value - mean for value, mean in zip(vector, self.mean, strict=True)]
        length = math.hypot(*centred) or 1.0
        return Features([*(value / length for value in centred), 1.0], buckets(text))


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a sentence: its scaled embedding with a 1 for the bias, and the buckets of
    its pieces."""

    embedding: Sequence[float]
    buckets: Sequence[int]

    def probabilities(self, rows: Rows) -> dict[str, float]:
        """Return the probability of each label."""
        value = PIECES_LENGTH / math.sqrt(len(self.buckets) or 1)
        places = [DIMENSIONS + 1 + bucket for bucket in self.buckets]
        scores = {
            label: sum(map(mul, row, self.embedding)) + value * sum(row[each] for each in places)
            for label, row in rows.items()
        }
        highest = max(scores.values())
        shares = {label: math.exp(score - highest) for label, score in scores.items()}
        total = sum(shares.values())
        return {label: share / total for label, share in shares.items()}


def buckets(text: str) -> list[int]:
    """Return the buckets of the words of a text, of its pairs of words, and of the pieces of its
    words, each once."""
    return sorted({zlib.crc32(piece.encode(errors="replace")) % BUCKETS for piece in _pieces(text)})


def _pieces(text: str) -> Iterator[str]:
    words = ["<", *_WORD.findall(text.lower()), ">"]
    yield from words
    for one, other in pairwise(words):
        yield f"{one} {other}"
    for word in words:
        whole = f"_{word}_"
        for start in range(len(whole) - _PIECE + 1):
            yield f"#{whole[start : start + _PIECE]}"


@cache
def classifier() -> Classifier:
    """Return the shipped classifier."""
    stored = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    kinds, languages, courtesies = (
        {label: _row(packed) for label, packed in stored[head].items()}
        for head in ("kinds", "languages", "courtesies")
    )
    return Classifier(stored["mean"], kinds, languages, courtesies)


def _row(packed: str) -> Sequence[float]:
    """Unpack the weights of a label: those of the embedding and the bias as little-endian floats of
    half precision, a float by which those of the buckets are to be multiplied, and these, a signed
    byte each."""
    raw = base64.b64decode(packed)
    *embedding, scale = struct.unpack_from(f"<{DIMENSIONS + 1}ef", raw)
    return array("f", [*embedding, *(scale * each for each in array("b", raw[-BUCKETS:]))])
