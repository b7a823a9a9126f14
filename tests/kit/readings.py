"""Embeddings that are read as a given kind, for tests in which only the kind matters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from llm.reading.reading import DIMENSIONS, classifier


def embedding_of(kind: str) -> Sequence[float]:
    """Return a vector that the classifier reads as `kind`, in English."""
    read = classifier()
    both = zip(read.kinds[kind].embedding, read.languages["en"].embedding, strict=True)
    weights = [a + b for a, b in both][:DIMENSIONS]
    length = math.hypot(*weights)
    return [mean + weight / length for mean, weight in zip(read.mean, weights, strict=True)]


def by_cues(**cues: str) -> Callable[[str], str]:
    """Return a function that reads a text as the first kind whose cue is in it, else not at all."""

    def kind_of(text: str) -> str:
        return next((kind for kind, cue in cues.items() if cue in text), "")

    return kind_of
