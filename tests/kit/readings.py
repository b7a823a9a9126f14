"""Embeddings that are read as a given kind, for tests in which only the kind matters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llm.reading.classifier import DIMENSIONS, classifier


def embedding_of(kind: str) -> Sequence[float]:
    """Return a vector that the classifier reads as `kind`, in English."""
    read = classifier()
    both = zip(read.kinds[kind], read.languages["en"], strict=True)
    weights = [a + b for a, b in both][:DIMENSIONS]
    length = math.hypot(*weights)
    return [mean + weight / length for mean, weight in zip(read.mean, weights, strict=True)]
