"""The probability that a line answers a question: a logistic model of features of the two.

The weights are fitted by `benchmarks/passages_fit.py` to questions about facts among real lines of
#ubuntu, and to questions that nobody there has answered; only "recent" is set lower. So a score is
about a probability, and one threshold holds for a channel of forty lines and a log of a million.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from storage.passages.words import (
    QuestionWord,
    QuestionWords,
    asks,
    is_content,
    rarity_of_rank,
    related_words,
    shows,
    stem,
    tokens,
)

FEATURES = (
    "bias",
    "exact",
    "related",
    "heaviest missing",
    "evidence",
    "asks",
    "shows",
    "lacks",
    "length",
    "nothing new",
    "density",
    "name missing",
    "recent",
    "recent related",
    "log size",
    "commonplace",
    "link",
    "states",
    "states all",
)
WEIGHTS: Mapping[str, float] = {
    "bias": -2.80,
    "exact": 0.00,
    "related": 8.24,
    "heaviest missing": -1.78,
    "evidence": 5.50,
    "asks": -3.54,
    "shows": 1.84,
    "lacks": -2.94,
    "length": -3.52,
    "nothing new": -2.53,
    "density": 2.27,
    "name missing": -1.95,
    # The fit has 2.02, but all of the newest lines are scored, so that many match by chance; and if
    # none is the answer, the nearest ones are shown as such.
    "recent": 0.92,
    "recent related": 1.83,
    "log size": -7.11,
    "commonplace": -4.25,
    "link": -1.02,
    "states": 0.22,
    "states all": 2.49,
}
_MAX_WEIGHT = 7.0
_MIN_TYPO_LENGTH = 5  # least letters of a word that may be misspelt
_MIN_TYPO_WEIGHT = 5.0  # and its least weight: only rare words are compared with misspellings
_TYPO_QUALITY = 0.8  # quality of a match with a misspelt word
_NICK_QUALITY = 0.9  # quality of a match with the speaker's nick
_SHORT_LINE_WORDS = 8  # words up to which a line counts as short
_MAX_EXCESS_WORDS = 40  # words beyond these that count at most


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
        return cls(text, words, stems, set(stems), _names(nick))


@lru_cache(1_024)
def _names(nick: str) -> frozenset[str]:
    return frozenset({nick.lower(), *map(stem, tokens(nick))})


class WeighedQuestion:
    """A question with the weights of its words, by root, in a log of about `lines` lines."""

    def __init__(self, question: QuestionWords, weights: Mapping[str, float], lines: int) -> None:
        self.question = question
        self.weights = weights
        self.lines = lines
        self.whole = sum(weights.values()) or 1.0
        """The sum of the weights of all words."""
        self._stems = frozenset(
            root for word in question.words for root in (word.root, *word.related)
        )

    def touches(self, line: SpokenLine) -> bool:
        """Return True if a line or its speaker has a word of the question or a related one."""
        return not (self._stems.isdisjoint(line.present) and self._stems.isdisjoint(line.speaker))


@lru_cache(8_192)
def rarity(root: str) -> float:
    """Return how much a stem tells by its frequency in English, from 1 (frequent) to 7 (rare)."""
    return rarity_of_rank(related_words().rank(root))


def features(asking: WeighedQuestion, line: SpokenLine, *, recent: bool) -> list[float]:
    """Return the values of FEATURES for a line, in their order. A `recent` line is one of the
    newest."""
    words, present = line.words, line.present
    exact = near = heaviest = rarest = 0.0
    name_missing = 0.0
    matched: set[str] = set()
    for word in asking.question.words:
        weight = asking.weights[word.root]
        quality = _exact(word, line, weight)
        if quality:
            matched.add(word.root)
            exact += weight * quality
            rarest = max(rarest, weight)
            continue
        # The line lacks the word: the likeliest related word in it counts in part.
        likeness, root = max(
            ((share, root) for root, share in word.related.items() if root in present),
            default=(0.0, ""),
        )
        near += weight * likeness
        matched.add(root)
        heaviest = max(heaviest, weight * (1 - likeness))
        name_missing = max(name_missing, float(word.is_name))
    states = float(asking.question.is_state and _states(line, matched))
    shown = shows(asking.question.expected, _remaining_text(words, matched))
    density, new = _density(line, matched)
    whole = asking.whole
    size = math.log10(asking.lines + 10) / 6
    return [
        1.0,
        exact / whole,
        near / whole,
        heaviest / _MAX_WEIGHT,
        min(exact, 3 * _MAX_WEIGHT) / 10,
        float(asks(line.text)),
        float(shown is True),
        float(shown is False),
        min(max(0, len(words) - _SHORT_LINE_WORDS), _MAX_EXCESS_WORDS) / 10,
        float(not new),
        density,
        name_missing,
        float(recent),
        recent * near / whole,
        size,
        size * (1 - rarest / _MAX_WEIGHT),
        float("http" in line.text),
        states,
        states * (heaviest == 0),
    ]


def _density(line: SpokenLine, matched: Set[str]) -> tuple[float, bool]:
    """Return the share of matched words in a line's content, weighted by rarity, and True if the
    line has other content."""
    content = [root for word, root in zip(line.words, line.stems, strict=True) if is_content(word)]
    told = sum(map(rarity, content))
    holds = sum(rarity(root) for root in content if root in matched)
    return (holds / told if told else 0.0), any(root not in matched for root in content)


def chance(values: Sequence[float]) -> float:
    """Return the probability, from 0 to 1, that a line with these features answers the question."""
    total = sum(WEIGHTS[name] * value for name, value in zip(FEATURES, values, strict=True))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


def as_statement(values: Sequence[float]) -> list[float]:
    """Return the features of a line that is a question as if it were an answer. Their score tells
    how likely it asks about the same."""
    whole = {"asks": 0.0, "lacks": 0.0, "nothing new": 0.0, "shows": 1.0}
    return [whole.get(name, value) for name, value in zip(FEATURES, values, strict=True)]


def rounded_log_odds(share: float) -> float:
    """Return the log-odds of a probability in steps of 0.5, which is about its precision."""
    kept = min(max(share, 1e-9), 1 - 1e-9)
    return round(2 * math.log(kept / (1 - kept))) / 2


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


def _remaining_text(words: Sequence[str], matched: set[str]) -> str:
    """Return the text of a line without the matched words."""
    return " ".join(word for word in words if stem(word) not in matched)
