"""Retrieval by the meaning of words: "which day do we vote?" finds "the next board election is on
the 3rd of november".

Each word of the question is compared with the most similar word of a line, by their vectors
(storage/passages/word_vectors.py) and weighted by rarity, and each word of the line with those of
the question. The sums of both texts' vectors tell whether they share a topic. These features, the
expected kind of answer and the person who is named go into a logistic model, whose weights are
fitted by `benchmarks/nearest_fit.py`. It ranks lines well, but tells badly whether the best one is
an answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul

from storage.chat_log.query import Query
from storage.connection import Connection
from storage.passages.passages import (
    MAX_QUESTION_SCORE,
    PEOPLE,
    LineFilter,
    Passage,
    Passages,
    PassageSearch,
    distinct,
)
from storage.passages.score import SpokenLine
from storage.passages.word_vectors import word_vectors
from storage.passages.words import (
    QuestionWords,
    asks,
    is_content,
    question_words,
    rarity_of_rank,
    shows,
)

FEATURES = (
    "similarity",
    "peak",
    "reverse",
    "topic",
    "shows",
    "lacks",
    "asks",
    "long",
    "short",
    "named",
    "first person",
    "addressed",
    "link",
)
WEIGHTS: Mapping[str, float] = {
    "similarity": 3.85,
    "peak": 3.14,
    "reverse": 1.85,
    "topic": 3.78,
    "shows": 1.44,
    "lacks": -1.44,
    "asks": -1.96,
    "long": -1.26,
    "short": -1.85,
    "named": 3.87,
    "first person": 1.52,
    "addressed": -1.0,
    "link": -0.62,
}
_EVEN_ODDS_SUM = 5.5  # weighted sum at which the best line is right as often as wrong
_MAX_WEIGHT = 7.0
_MIN_CONTENT_WORDS = 3  # content words, below which a line says little
_LONG_LINE_WORDS = 8  # words up to which a line does not count as long
_MAX_EXCESS_WORDS = 40  # words beyond these that count at most
_ADDRESSED = re.compile(r"@?[\w|`^\[\]{}\\-]+[:,] ")
_FIRST_PERSON = re.compile(r"\b(?:i|i['’]?m|i['’]?ve|me|my|we|our)\b", re.IGNORECASE)


def find_nearest(
    connection: Connection, question: str, within: Query, line_filter: LineFilter = PEOPLE
) -> Passages:
    """Return the lines nearest in meaning to `question`, best first, at most `within.limit`, each
    with the probability that it is the answer. Compared are the newest lines, and older ones that
    the index has for the words of the question and their synonyms."""
    search = PassageSearch.prepare(connection, question, within, line_filter)
    if search is None:
        return Passages()
    asking = MeantQuestion(question_words(question))
    found = []
    for event in search.events():
        score = chance(asking.features(SpokenLine.from_text(event.text, event.nick)))
        is_question = event.text.rstrip().endswith("?")
        found.append(Passage(event, min(score, MAX_QUESTION_SCORE) if is_question else score))
    best = distinct(sorted(found, key=lambda each: (-each.score, -each.event.id)))
    return search.passages(best[: within.limit])


def chance(values: Sequence[float]) -> float:
    """Return the probability, from 0 to 1, that a line with these features answers the question."""
    total = sum(WEIGHTS[name] * value for name, value in zip(FEATURES, values, strict=True))
    return 1 / (1 + math.exp(_EVEN_ODDS_SUM - total))


@dataclass(frozen=True, slots=True)
class _Word:
    root: str
    weight: float
    vector: Sequence[int] | None


class MeantQuestion:
    """A question that is compared with lines by the meaning of its words."""

    def __init__(self, question: QuestionWords) -> None:
        self._question = question
        self._words = [_word(each.root) for each in question.words]
        self._topic = _sum(self._words)
        self._similarities: dict[str, list[float]] = {}

    def features(self, line: SpokenLine) -> list[float]:
        """Return the values of FEATURES for a line, in their order."""
        content = [
            root for word, root in zip(line.words, line.stems, strict=True) if is_content(word)
        ]
        rows = [self._similar(root) for root in content]
        reached = peak = whole = 0.0
        named = False
        for place, word in enumerate(self._words):
            if word.root in line.speaker:  # the question is about this person: no word need match
                named = True
                continue
            nearest = max((row[place] for row in rows), default=0.0)
            whole += word.weight
            reached += word.weight * nearest
            peak = max(peak, word.weight * nearest)
        words = [_word(root) for root in content]
        told = sum(word.weight for word in words)
        answered = sum(
            word.weight * max(row, default=0.0) for word, row in zip(words, rows, strict=True)
        )
        shown = shows(self._question.expected, line.text)
        return [
            reached / whole if whole else 0.0,
            peak / _MAX_WEIGHT,
            answered / told if told else 0.0,
            _cosine(self._topic, _sum(words)),
            float(shown is True),
            float(shown is False),
            float(asks(line.text)),
            min(max(0, len(line.words) - _LONG_LINE_WORDS), _MAX_EXCESS_WORDS) / 10,
            float(len(content) < _MIN_CONTENT_WORDS),
            float(named),
            float(named and _FIRST_PERSON.search(line.text) is not None),
            float(_ADDRESSED.match(line.text) is not None),
            float("http" in line.text),
        ]

    def _similar(self, root: str) -> list[float]:
        """Return the similarity of a stem to each word of the question. It is cached, as lines
        share words."""
        if (known := self._similarities.get(root)) is not None:
            return known
        table = word_vectors()
        vector = table.vector(root)
        row = []
        for word in self._words:
            if word.root == root:
                row.append(1.0)
            elif vector is None or word.vector is None:
                row.append(0.0)
            else:
                row.append(table.similarity(vector, word.vector))
        self._similarities[root] = row
        return row


@lru_cache(8_192)
def _word(root: str) -> _Word:
    table = word_vectors()
    return _Word(root, rarity_of_rank(table.rank(root)), table.vector(root))


def _sum(words: Sequence[_Word]) -> list[float]:
    """Return the sum of the words' vectors, weighted by rarity."""
    total = [0.0] * word_vectors().dimensions
    for word in words:
        if word.vector is not None:
            weight, vector = word.weight, word.vector
            total = [each + weight * value for each, value in zip(total, vector, strict=True)]
    return total


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    norm = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / norm if norm else 0.0
