"""Fit the weights of `llm/reading` to the seen sentences and write them to its `weights.json`.

    make train

Multinomial logistic regressions, by kind, by language, and of small talk by courtesy, over the
embeddings of the sentences as queries, less their mean and scaled to length one, and over their
hashed pieces. A fifth of the sentences, left out of a first fit, estimates how often the kind is
right; the unseen half is never read here (`make bench-reading` counts it). The result is the same
each time on one machine. Embedding takes some ten minutes on two cores, once; fitting two. Needs
numpy and scipy.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.embedder import BenchEmbedder
from llm.reading.reading import BUCKETS, DIMENSIONS, PIECES_LENGTH, WEIGHTS, buckets, shorten

SENTENCES = Path(__file__).parent / "questions" / "reading"
LANGUAGES = ("de", "en", "es", "fr", "it", "pl")
REAL = "ubuntu"
"""The name of the file of real questions, in English."""

_LEFT_OUT = 5  # the divisor that gives the sentences that are left out of the first fit
_STEPS, _RATE = 300, 0.5
_PENALTY = 0.1  # of the squared weights, by the sentences left out

Floats = NDArray[np.float32]


def sentences(half: str, name: str) -> list[tuple[str, str]]:
    """Return the labelled sentences of a half and a language or REAL, as (kind, text)."""
    return _labelled(SENTENCES / half / f"{name}.tsv")


def _labelled(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(label, text) for label, _, text in (line.partition("\t") for line in lines)]


async def embed(texts: Sequence[str]) -> Floats:
    """Return the embeddings of texts as queries, of shape (texts, 384). Raises PullError."""
    asked = [shorten(text) for text in texts]
    async with BenchEmbedder.open() as embedder:
        made = await embedder.cached(asked, query=True)
    return np.array([made[text] for text in asked], np.float32)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the classifier sees of sentences: the centred embeddings with a 1 for the bias, of shape
    (sentences, 385), and their pieces, of shape (sentences, 16,384)."""

    embeddings: Floats
    pieces: csr_array

    def __getitem__(self, rows: NDArray[np.bool_]) -> Inputs:
        return Inputs(self.embeddings[rows], self.pieces[rows])

    def scores(self, weights: Floats) -> Floats:
        """Return the scores by sentence and label, for weights of shape (inputs, labels)."""
        dense = self.embeddings.shape[1]
        scores: Floats = self.embeddings @ weights[:dense] + self.pieces @ weights[dense:]
        return scores


def inputs_of(texts: Sequence[str], vectors: Floats, mean: Floats) -> Inputs:
    """Return what the classifier sees of sentences and their embeddings."""
    centred = vectors - mean
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    found = [buckets(shorten(text)) for text in texts]
    values = np.concatenate(
        [np.full(len(each), PIECES_LENGTH / np.sqrt(len(each)), np.float32) for each in found]
    )
    ends = np.cumsum([0, *map(len, found)])
    pieces = csr_array((values, np.concatenate(found), ends), shape=(len(texts), BUCKETS))
    return Inputs(np.hstack([centred, np.ones((len(texts), 1), np.float32)]), pieces)


def fit(inputs: Inputs, labels: NDArray[np.int64], count: int) -> Floats:
    """Return the weights of shape (inputs, `count`) that minimise the cross-entropy (Adam)."""
    wanted = np.eye(count, dtype=np.float32)[labels]
    size = DIMENSIONS + 1 + BUCKETS
    weights, mean, square = (np.zeros((size, count), np.float32) for _ in range(3))
    shrunk = np.ones((size, 1), np.float32)
    shrunk[DIMENSIONS] = 0  # not the bias
    embeddings, pieces = inputs.embeddings.T, inputs.pieces.T.tocsr()
    for step in range(1, _STEPS + 1):
        scores = inputs.scores(weights)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        wrong = shares - wanted
        gradient: Floats = np.vstack([embeddings @ wrong, pieces @ wrong])
        gradient += 2 * _PENALTY * shrunk * weights
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        unbiased = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
        weights -= _RATE * (1 - step / (_STEPS + 1)) * unbiased
    return weights


def pack(names: Sequence[str], weights: Floats) -> dict[str, str]:
    """Return the weights by label, in the base64 that `llm.reading.reading` unpacks."""
    packed = {}
    for name, row in zip(names, weights.T, strict=True):
        dense, pieces = row[: DIMENSIONS + 1], row[DIMENSIONS + 1 :]
        scale = max(float(np.abs(pieces).max()), 1e-9) / 127
        steps = np.round(pieces / scale).astype("i1")
        raw = dense.astype("<f2").tobytes() + struct.pack("<f", scale) + steps.tobytes()
        packed[name] = base64.b64encode(raw).decode()
    return packed


def main() -> None:
    """Fit the weights, print how well they generalise, and write them."""
    data = [(kind, text, name) for name in LANGUAGES for kind, text in sentences("seen", name)]
    data += [(kind, text, "en") for kind, text in sentences("seen", REAL)]
    polite = _labelled(SENTENCES / "courtesies.tsv")
    texts = [text for _, text, _ in data]
    vectors = asyncio.run(embed([*texts, *(text for _, text in polite)]))
    vectors, polite_vectors = vectors[: len(data)], vectors[len(data) :]
    mean = vectors.mean(axis=0)
    inputs = inputs_of(texts, vectors, mean)
    kinds = sorted({kind for kind, _, _ in data})
    by_kind = np.array([kinds.index(kind) for kind, _, _ in data])
    by_language = np.array([LANGUAGES.index(name) for _, _, name in data])
    left_out = np.random.default_rng(1).integers(_LEFT_OUT, size=len(data)) == 0
    weights = fit(inputs[~left_out], by_kind[~left_out], len(kinds))
    right = inputs[left_out].scores(weights).argmax(axis=1) == by_kind[left_out]
    print(f"{len(data)} sentences; kind right of those left out: {100 * right.mean():.1f} %")
    courtesies = sorted({label for label, _ in polite})
    by_courtesy = np.array([courtesies.index(label) for label, _ in polite])
    polite_inputs = inputs_of([text for _, text in polite], polite_vectors, mean)
    heads = {
        "mean": [round(float(value), 6) for value in mean],
        "kinds": pack(kinds, fit(inputs, by_kind, len(kinds))),
        "languages": pack(LANGUAGES, fit(inputs, by_language, len(LANGUAGES))),
        "courtesies": pack(courtesies, fit(polite_inputs, by_courtesy, len(courtesies))),
    }
    WEIGHTS.write_text(json.dumps(heads, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
