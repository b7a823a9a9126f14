"""Kind and language of a sentence, by two multinomial logistic heads over its embedding.

`weights.json` is made by `make train` from the labelled sentences in
`benchmarks/questions/reading`, whose README describes the kinds. Adding a phrase is adding a line
of data, in any language.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import mul
from pathlib import Path

DIMENSIONS = 384
"""Those of the embeddings that the weights were fitted to."""

WEIGHTS = Path(__file__).with_name("weights.json")


Rows = Mapping[str, Sequence[float]]
"""The weights of one multinomial logistic regression by label; the last number is the bias."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """The weights for kinds and languages, and the mean embedding of the training data."""

    mean: Sequence[float]
    kinds: Rows
    languages: Rows

    def read(self, vector: Sequence[float]) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return the probabilities of the kinds and of the languages for the embedding of a
        sentence as a query."""
        # The embeddings of all sentences point in nearly the same direction, so that what tells
        # them apart is the difference from the mean.
        centred = [value - mean for value, mean in zip(vector, self.mean, strict=True)]
        length = math.hypot(*centred) or 1.0
        features = [*(value / length for value in centred), 1.0]
        return _probabilities(self.kinds, features), _probabilities(self.languages, features)


def _probabilities(rows: Rows, features: Sequence[float]) -> dict[str, float]:
    scores = {label: sum(map(mul, row, features)) for label, row in rows.items()}
    highest = max(scores.values())
    shares = {label: math.exp(score - highest) for label, score in scores.items()}
    total = sum(shares.values())
    return {label: share / total for label, share in shares.items()}


@cache
def classifier() -> Classifier:
    """Return the shipped classifier."""
    stored = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return Classifier(stored["mean"], _rows(stored["kinds"]), _rows(stored["languages"]))


def _rows(stored: Mapping[str, str]) -> Rows:
    return {
        label: struct.unpack(f"<{DIMENSIONS + 1}e", base64.b64decode(row))
        for label, row in stored.items()
    }
