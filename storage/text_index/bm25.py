"""Okapi BM25 over a few texts in memory, with the constants of FTS5's `bm25()`
(https://www.sqlite.org/fts5.html#the_bm25_function)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from storage.text_index.words import fold, words

_K1, _B = 1.2, 0.75
# Least weight of a word, as in FTS5: one that most texts have would weigh below 0.
_MIN_WEIGHT = 1e-6


def rank(texts: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, float]]:
    """Return position and score of each text that has any of the `wanted` words, best first; ties
    are in order of position."""
    documents = [Counter(words(fold(text))) for text in texts]
    lengths = [document.total() for document in documents]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    scores: dict[int, float] = {}
    for word in dict.fromkeys(map(fold, wanted)):
        having = [place for place, document in enumerate(documents) if word in document]
        weight = math.log((len(texts) - len(having) + 0.5) / (len(having) + 0.5))
        for place in having:
            often = documents[place][word]
            length = _K1 * (1 - _B + _B * lengths[place] / average)
            value = max(weight, _MIN_WEIGHT) * often * (_K1 + 1) / (often + length)
            scores[place] = scores.get(place, 0.0) + value
    return sorted(scores.items(), key=lambda each: (-each[1], each[0]))
