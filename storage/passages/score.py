"""The probability that a line answers a question: a conditional logit model of features of the two,
and gradient-boosted trees that correct it where the meaning is known.

The features are of words and of meaning, the latter by embeddings (storage/search/vectors.py), if
both have one, and of the lines just before it. `weights.json` and `trees.json` are written by
`benchmarks/passages_fit.py`, which fits them to questions about facts among real lines of #ubuntu
and about the talk of small channels, and to questions that nobody there has answered. So a score is
about a probability, and one threshold holds for a channel of forty lines and a log of a million.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from storage.passages.words import (
    Expected,
    QuestionWord,
    QuestionWords,
    asks,
    is_content,
    shows,
    stem,
    tokens,
)
from storage.search.vectors import Likeness

WEIGHTS = Path(__file__).with_name("weights.json")
TREES = Path(__file__).with_name("trees.json")
FEATURES = (
    "bias",
    "coverage",
    "coverage in a large log",
    "all words",
    "heaviest missing",
    "evidence in a large log",
    "asks",
    "shows",
    "lacks",
    "length",
    "short",
    "nothing new",
    "name missing",
    "speaker",
    "log size",
    "commonplace",
    "link",
    "states all",
    "reply",
    "meaning",
    "outstanding",
    "meaning and words",
    "meaning without a word",
    "meaning in a large log",
    "no meaning",
    "coverage without meaning",
    "meaning in talk",
    "outstanding in talk",
    "coverage before",
    "meaning before",
    "meaning of a question before",
    "meaning just before",
    "meaning of a question just before",
)
_CONTEXT = FEATURES.index("coverage before")  # the first of those of the lines before
_ASKS = FEATURES.index("asks")
_COVERAGE, _MISSING = FEATURES.index("coverage"), FEATURES.index("heaviest missing")
_SIZE = FEATURES.index("log size")
_SENTENCE = re.compile(r"[^.!?]+[.!?]*")
_MAX_WEIGHT = 7.0
_MIN_TYPO_LENGTH = 5  # least letters of a word that may be misspelt
_MIN_TYPO_WEIGHT = 5.0  # and its least weight: only rare words are compared with misspellings
_TYPO_QUALITY = 0.8  # quality of a match with a misspelt word
_NICK_QUALITY = 0.9  # quality of a match with the speaker's nick
_SHORT_LINE_WORDS = 8  # words up to which a line counts as short
_MIN_CONTENT_WORDS = 3  # content words, below which a line says little
_MAX_EXCESS_WORDS = 40  # words beyond these that count at most
_LINES_BEFORE = 4  # lines before another by which that is understood
MOST_BEFORE = 6
"""The number of lines before another among which one may be the question that it answers."""


@dataclass(frozen=True, slots=True)
class SpokenLine:
    """A spoken line, tokenized.

    `stems` are those of `words`, in the same order, and `present` is their set. `speaker` has the
    nick and the stems of its words.
    """

    text: str
    words: Sequence[str]
    stems: Sequence[str]
    present: Set[str]
    speaker: Set[str]

    @classmethod
    def from_text(cls, text: str, nick: str) -> SpokenLine:
        """Tokenize what `nick` said."""
        words = tokens(text)
        stems = [stem(word) for word in words]
        return cls(text, words, stems, set(stems), names(nick))


@lru_cache(1_024)
def names(nick: str) -> frozenset[str]:
    """Return a nick and the stems of its words, by which people call its owner."""
    return frozenset({nick.lower(), *map(stem, tokens(nick))})


class WeighedQuestion:
    """A question with the weights of its words, by root, in a log of about `lines` lines."""

    def __init__(self, question: QuestionWords, weights: Mapping[str, float], lines: int) -> None:
        self.question = question
        self.weights = weights
        self.lines = lines
        self.whole = sum(weights.values()) or 1.0
        """The sum of the weights of all words."""

    def features(self, line: SpokenLine) -> list[float]:
        """Return the values of FEATURES for a line, in their order, without its meaning."""
        exact = heaviest = rarest = 0.0
        name_missing = speaker = False
        matched: set[str] = set()
        for word in self.question.words:
            weight = self.weights[word.root]
            quality = _exact(word, line, weight)
            if quality:
                matched.add(word.root)
                exact += weight * quality
                rarest = max(rarest, weight)
                speaker |= word.root in line.speaker
            else:
                heaviest = max(heaviest, weight)
                name_missing |= word.is_name
        words = line.words
        rest = " ".join(w for w, root in zip(words, line.stems, strict=True) if root not in matched)
        # A person is told by capitals, which `words` have no more.
        is_person = self.question.expected is Expected.PERSON
        shown = shows(self.question.expected, line.text if is_person else rest)
        content = [root for w, root in zip(words, line.stems, strict=True) if is_content(w)]
        size = math.log10(self.lines + 10) / 6
        coverage, evidence = exact / self.whole, min(exact, 3 * _MAX_WEIGHT) / 10
        return [
            1.0,
            coverage,
            coverage * size,
            float(not heaviest),
            heaviest / _MAX_WEIGHT,
            evidence * size,
            float(asks(line.text) and not _tells(line.text, matched)),
            float(shown is True),
            float(shown is False),
            min(max(0, len(words) - _SHORT_LINE_WORDS), _MAX_EXCESS_WORDS) / 10,
            float(len(content) < _MIN_CONTENT_WORDS),
            float(all(root in matched for root in content)),
            float(name_missing),
            float(speaker),
            size,
            size * (1 - rarest / _MAX_WEIGHT),
            float("http" in line.text),
            float(self.question.is_state and not heaviest and _states(line, matched)),
            0.0,  # the chance that it is a reply
            # Until the meaning is known:
            *(0.0, 0.0, 0.0, 0.0, 0.0, 1.0, coverage, 0.0, 0.0),
            *(0.0, 0.0, 0.0, 0.0, 0.0),  # without the lines before it
        ]


def _exact(word: QuestionWord, line: SpokenLine, weight: float) -> float:
    if word.root in line.present:
        return 1.0
    if word.root in line.speaker:
        return _NICK_QUALITY
    written = word.forms[0]
    if weight >= _MIN_TYPO_WEIGHT and len(written) >= _MIN_TYPO_LENGTH:
        for each in line.words:
            if each[0] == written[0] and _misspelt(written, each):
                return _TYPO_QUALITY
    return 0.0


def _tells(text: str, matched: Set[str]) -> bool:
    """Return True if a line has all matched words in sentences that ask nothing: "the sale is on
    Saturday. who helps?"."""
    said = " ".join(each for each in _SENTENCE.findall(text) if not asks(each))
    return bool(matched) and matched <= set(map(stem, tokens(said)))


def _states(line: SpokenLine, matched: Set[str]) -> bool:
    """Return True if a line says what a matched word is: "the parcel is", "is the boss"."""
    stems = line.stems
    for place, root in enumerate(stems):
        if root == "be":
            after = stems[place + 1 : place + 3]
            if (place and stems[place - 1] in matched) or (after and after[-1] in matched):
                return True
    return False


def _misspelt(word: str, other: str) -> bool:
    """Return True if two long words differ by one edit: a letter replaced, inserted or removed, or
    two neighbours transposed."""
    if abs(len(word) - len(other)) > 1 or len(other) < _MIN_TYPO_LENGTH:
        return False
    # None for a word and its beginning: the difference is an ending, and no misspelling.
    at = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), None)
    if at is None or not word.isalpha() or not other.isalpha():
        return False
    rest, others = word[at:], other[at:]
    swapped = len(rest) > 1 and rest[1::-1] == others[:2] and rest[2:] == others[2:]
    return swapped or rest[1:] == others[1:] or rest == others[1:] or rest[1:] == others


def with_meaning(values: Sequence[float], likeness: Likeness, best_other: Likeness) -> list[float]:
    """Return the features of a line with the likeness of its meaning to the question's, and the
    best ones of all other lines."""
    alone = likeness.alone
    known = {
        "meaning": alone,
        "outstanding": alone - best_other.alone,
        "meaning and words": alone * values[_COVERAGE],
        "meaning without a word": alone * values[_MISSING],
        "meaning in a large log": alone * values[_SIZE],
        "no meaning": 0.0,
        "coverage without meaning": 0.0,
        "meaning in talk": likeness.in_talk,
        "outstanding in talk": likeness.in_talk - best_other.in_talk,
    }
    return [known.get(name, value) for name, value in zip(FEATURES, values, strict=True)]


@dataclass(frozen=True, slots=True)
class LineBefore:
    """A line just before another: who said it, its features of words, and the likeness of its
    meaning to the question's, 0 if that is unknown."""

    nick: str
    values: Sequence[float]
    likeness: float


def with_context(
    values: Sequence[float], nick: str, before: Sequence[LineBefore]
) -> Sequence[float]:
    """Return the features of a line with those of the lines before it, in order of time.

    "gordon has it" answers "who has the key?" only because somebody has just asked about the key.
    """
    near = before[-_LINES_BEFORE:]
    if not near:
        return values
    asked = [
        each.likeness for each in before[-MOST_BEFORE:] if each.values[_ASKS] and each.nick != nick
    ]
    last = near[-1]
    is_reply = last.values[_ASKS] and last.nick != nick
    context = (
        max(each.values[_COVERAGE] for each in near),
        max(each.likeness for each in near),
        max(asked, default=0.0),
        last.likeness,
        last.likeness if is_reply else 0.0,
    )
    return [*values[:_CONTEXT], *context]


def log_odds(values: Sequence[float]) -> float:
    """Return the logarithm of how much likelier it is that a line with these features answers the
    question than that no line does."""
    weights = _weights()
    return sum(weights[name] * value for name, value in zip(FEATURES, values, strict=True))


def correction(values: Sequence[float]) -> float:
    """Return what to add to the log-odds of a line with these features if the question's meaning is
    known: how much a likeness counts depends on the words, and neither on the other alone."""
    total = 0.0
    for node in _trees():
        while isinstance(node, list):
            feature, most, low, high = node
            node = low if values[feature] <= most else high
        total += node
    return total


def chances(odds: Sequence[float]) -> list[float]:
    """Return the probabilities, from 0 to 1, that each of some lines answers the question, by their
    `log_odds`: one of them does, or none."""
    most = max(0.0, *odds) if odds else 0.0
    raised = [math.exp(each - most) for each in odds]
    whole = sum(raised) + math.exp(-most)
    return [each / whole for each in raised]


_Node: TypeAlias = float | list[Any]
"""A tree: its value, or [index of a feature, the most for the first branch, two branches]."""


@cache
def _trees() -> Sequence[_Node]:
    found: list[_Node] = json.loads(TREES.read_text(encoding="utf-8"))
    return found


@cache
def _weights() -> Mapping[str, float]:
    found: dict[str, float] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return found
