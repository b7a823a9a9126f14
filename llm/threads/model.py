"""Models of conversation disentanglement: which line a line replies to, and which lines belong to a
question.

Both models are linear over binned features: a score is the sum of one weight per feature, that of
the bin its value falls into. So fitting is a convex problem, and scoring a few list look-ups.

The link model predicts the parent of a line, the earlier line that it replies to, or that it starts
a conversation. It is a multinomial logit over the last `LINK_WINDOW` lines and "starts one". Its
features are the usual ones of the field (Elsner and Charniak 2008; Kummerfeld et al. 2019): the
distance of a line, who said it and to whom, who has spoken since, which words it shares.

The ranking model selects the lines, of the last few hundred, that belong to a question. It combines
the probability of one conversation, from the link model, with the other lines of the same speaker,
the time since a line and the words it shares. It is a binary logit, fitted to hand-annotated reply
links.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import prod
from operator import itemgetter


class Bins(list[int]):
    """Bin index of each integer from 0 to `most`: the index of the first of `edges` that is not
    below it, `len(edges)` above all of them.

    A plain list, because each line takes some thousand look-ups.
    """

    def __init__(self, edges: Sequence[int], most: int) -> None:
        super().__init__(bisect_left(edges, value) for value in range(most + 1))
        self.bins = self[-1] + 1
        self.most = most

    def indices(self, start: int, row: int) -> list[int]:
        """Return the weight index of each number's bin, in a row of the block that begins at
        `start`."""
        return [start + row * self.bins + each for each in self]


class WeightLayout:
    """Allocator of blocks of the flat list of weights to features."""

    def __init__(self) -> None:
        self.size = 0

    def block(self, *sizes: int) -> int:
        """Allocate a block for a feature with the given number of bins, or for the product of
        several; return the index of its first weight."""
        start = self.size
        self.size += prod(sizes)
        return start


Weights = Sequence[float]
"""The weights of a model, one for each bin of each feature."""


_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_MAX_WEIGHT = 11.0  # maximum weight, that of a word which is neither listed nor learned
_COMMON_FREQUENCY = 0.0005  # fraction of lines from which a word counts as common
_OWN_LINE_WEIGHT = 20  # a line of the channel counts as much as this many lines of the list
_HALVING_INTERVAL = 10_000  # lines of the channel after which the learned counts are halved


def words(text: str) -> frozenset[str]:
    """Return the distinct words of a line with at least two characters, in lower case."""
    return frozenset(word for word in _WORD.findall(text.lower()) if len(word) > 1)


class InverseDocumentFrequency:
    """Inverse document frequency of words: ln(lines / lines with the word), at most 11.

    Starts with counts from other channels and learns those of this one, where a word that is rare
    elsewhere may be the topic of the day, and the language may be another.
    """

    def __init__(self, counts: Mapping[str, int], lines: int) -> None:
        """Start with `counts`, by word the number of the `lines` that contain it."""
        self._counts = counts
        self._lines = lines
        self._own: Counter[str] = Counter()
        self._own_lines = 0

    def is_common(self, word: str) -> bool:
        """Return whether a token is more likely an ordinary word than a nick."""
        return self._counts.get(word, 0) >= _COMMON_FREQUENCY * self._lines

    def squared_weight(self, word: str) -> float:
        """Return the square of a word's weight."""
        listed = self._counts.get(word)
        # Only frequent words are listed (60 lines or more); for others a prior count of 3.
        seen = (listed or 3) + _OWN_LINE_WEIGHT * self._own[word]
        return (
            min(math.log((self._lines + _OWN_LINE_WEIGHT * self._own_lines) / seen), _MAX_WEIGHT)
            ** 2
        )

    def learn(self, line: Iterable[str]) -> None:
        """Learn from the distinct words of a new line."""
        self._own.update(line)
        self._own_lines += 1
        # Exponential forgetting; it also bounds the table, as words seen once are dropped.
        if self._own_lines > _HALVING_INTERVAL:
            self._own = Counter({word: n // 2 for word, n in self._own.items() if n > 1})
            self._own_lines //= 2


@dataclass(frozen=True, slots=True)
class ThreadModel:
    """Parameters that `benchmarks/context_fit.py` has fitted to #ubuntu logs with hand-annotated
    reply links (Kummerfeld et al., ACL 2019): the weights of the link and ranking models, and for
    each frequent word the number of the `lines` that contain it."""

    links: Weights
    ranking: Weights
    words: Mapping[str, int]
    lines: int


@cache
def load_model() -> ThreadModel:
    """Return the model that is shipped with the package."""
    saved = json.loads((files("llm.threads") / "model.json").read_text(encoding="utf-8"))
    return ThreadModel(saved["links"], saved["ranking"], saved["words"], saved["lines"])


MAX_WORDS = 20
"""Maximum length of a line in words, as a feature."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A line that somebody said: the number `n` of the line, its speaker, addressee and all people
    it names as numbers of `People`, and its words."""

    n: int
    minute: int
    speaker: int
    addressee: int | None
    named: frozenset[int]
    words: frozenset[str]
    length: int  # in words, at most MAX_WORDS
    asks: bool


SAME, ADDRESSED, ANOTHER, CIRCLE, ANYBODY = AUTHOR_RELATIONS = range(5)
"""Author of an earlier line in relation to a reply: its speaker; its addressee; somebody else,
though the reply has an addressee; one of the speaker's circle; anybody else."""

NOBODY, SPEAKER, INSIDE, OUTSIDE, NAMES = ADDRESSEE_RELATIONS = range(5)
"""Addressee of an earlier line in relation to a reply: nobody; the reply's speaker; one of the
speaker's circle; somebody else; or the line names the speaker among others."""

MAX_SHARED_WEIGHT = 201
"""Maximum of the sum of squared weights of shared words, as a feature."""


@dataclass(frozen=True, slots=True)
class ReplyFeatures:
    """A line as a reply, the people its speaker interacts with (`circle`), and the rarity of the
    words it shares with earlier lines (`shared`: sum of squared weights by line number, at most
    MAX_SHARED_WEIGHT)."""

    line: Utterance
    circle: Set[int]
    shared: Mapping[int, int]

    def author_relation(self, earlier: Utterance) -> int:
        """Return the relation to the author of an earlier line, one of AUTHOR_RELATIONS."""
        line, by, to = self.line, earlier.speaker, earlier.addressee
        if by == line.speaker:
            return SAME
        if line.addressee is not None:
            return ADDRESSED if by == line.addressee else ANOTHER
        if by in self.circle and (to is None or to == line.speaker or to in self.circle):
            return CIRCLE
        return ANYBODY

    def addressee_relation(self, earlier: Utterance) -> int:
        """Return the addressee of an earlier line, one of ADDRESSEE_RELATIONS."""
        to = earlier.addressee
        if to == self.line.speaker:
            return SPEAKER
        if self.line.speaker in earlier.named:
            return NAMES
        if to is None:
            return NOBODY
        return INSIDE if to in self.circle else OUTSIDE

    def minutes_since(self, earlier: Utterance) -> int:
        """Return the minutes since an earlier line, at least 0."""
        return max(0, self.line.minute - earlier.minute)

    def shares_addressee(self, earlier: Utterance) -> bool:
        """Return whether both lines have the same addressee."""
        return self.line.addressee is not None and self.line.addressee == earlier.addressee


LINK_WINDOW = 120  # latest lines that are candidates for the parent
_MAX_PARENTS = 6
_MIN_PROBABILITY = 0.01  # parents that are less probable are dropped
# Inverse temperature of the softmax: below 1, uncertainty between parents is kept. Chosen on the
# training files.
_SHARPNESS = 0.8

_distances = Bins((1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 28, 36, 48, 64, 85), LINK_WINDOW)
_gaps = Bins((0, 1, 2, 3, 5, 8, 12, 20, 40, 90), 91)
_lengths = Bins((1, 2, 3, 5, 8, 12, 18), MAX_WORDS)
_shares = Bins((0, 5, 12, 20, 32, 50, 80, 130, 200), MAX_SHARED_WEIGHT)
_since = Bins((0, 1, 3, 5, 8, 13, 22, 36, 64, 120), 121)
_few = Bins((0, 1, 2), LINK_WINDOW)

_layout = WeightLayout()
_DISTANCE = _layout.block(len(AUTHOR_RELATIONS), _distances.bins)
_GAP = _layout.block(len(AUTHOR_RELATIONS), _gaps.bins)
_KIND = _layout.block(len(AUTHOR_RELATIONS), len(ADDRESSEE_RELATIONS))
_OWN_BETWEEN = _layout.block(len(AUTHOR_RELATIONS), _few.bins)
_THEIR_BETWEEN = _layout.block(len(AUTHOR_RELATIONS), _few.bins)
_SHARED = _layout.block(len(AUTHOR_RELATIONS), _shares.bins)
_LENGTH = _layout.block(len(AUTHOR_RELATIONS), _lengths.bins)
_SAME_ADDRESSEE = _layout.block(2)
_START_SINCE = _layout.block(_since.bins + 1)
_START_LENGTH = _layout.block(_lengths.bins)
_START_ASKS = _layout.block(2, 2)
_START_CIRCLE = _layout.block(_few.bins)
LINK_SIZE = _layout.size

_LINK_INDICES = [
    (
        _distances.indices(_DISTANCE, relation),
        _gaps.indices(_GAP, relation),
        range(
            _KIND + relation * len(ADDRESSEE_RELATIONS),
            _KIND + (relation + 1) * len(ADDRESSEE_RELATIONS),
        ),
        _few.indices(_OWN_BETWEEN, relation),
        _few.indices(_THEIR_BETWEEN, relation),
        _shares.indices(_SHARED, relation),
        _lengths.indices(_LENGTH, relation),
    )
    for relation in AUTHOR_RELATIONS
]
"""Weight indices of the link model by relation, precomputed because each line has up to
`LINK_WINDOW` candidates."""

Features = tuple[int, ...]
"""The index of the active weight of each feature."""


def link_features(reply: ReplyFeatures, earlier: Iterable[Utterance]) -> list[Features]:
    """Return the features of each candidate parent in `earlier`, which is newest first."""
    n, speaker, shared = reply.line.n, reply.line.speaker, reply.shared
    # Lines by speaker between the candidate and the reply: the reason to go from new to old.
    spoken: dict[int, int] = {}
    rows: list[Features] = []
    for each in earlier:
        indices = _LINK_INDICES[reply.author_relation(each)]
        distances, gaps, kinds, own, theirs, shares, lengths = indices
        since = spoken.get(each.speaker, 0)
        rows.append(
            (
                distances[n - each.n],
                gaps[min(reply.minutes_since(each), _gaps.most)],
                kinds[reply.addressee_relation(each)],
                own[spoken.get(speaker, 0)],
                theirs[since],
                shares[shared.get(each.n, 0)],
                lengths[each.length],
                _SAME_ADDRESSEE + reply.shares_addressee(each),
            )
        )
        spoken[each.speaker] = since + 1
    return rows


def start_features(reply: ReplyFeatures, since: int | None) -> Features:
    """Return the features of "starts a conversation"; the speaker's last line was `since` lines
    ago, None if there is none."""
    line = reply.line
    silent = _since.bins if since is None else _since[min(since, _since.most)]
    return (
        _START_SINCE + silent,
        _START_LENGTH + _lengths[line.length],
        _START_ASKS + 2 * (line.addressee is not None) + line.asks,
        _START_CIRCLE + _few[min(len(reply.circle), _few.most)],
    )


def parents(
    weights: Weights, reply: ReplyFeatures, earlier: list[Utterance], since: int | None
) -> list[tuple[Utterance, float]]:
    """Return the likeliest parents among `earlier` (newest first) with their probabilities, best
    first; `since` as in `start_features`."""
    scores = [
        weights[a] + weights[b] + weights[c] + weights[d]
        + weights[e] + weights[f] + weights[g] + weights[h]
        for a, b, c, d, e, f, g, h in link_features(reply, earlier)
    ]  # fmt: skip
    start = sum(weights[place] for place in start_features(reply, since))
    # Softmax over all candidates and "starts a conversation", with the maximum subtracted so that
    # exp does not overflow. The probability mass of "starts" belongs to no parent.
    most = max([start, *scores])
    chances = [math.exp(_SHARPNESS * (score - most)) for score in scores]
    whole = sum(chances) + math.exp(_SHARPNESS * (start - most))
    best = sorted(zip(earlier, chances, strict=True), key=itemgetter(1), reverse=True)
    likely = [(each, chance / whole) for each, chance in best[:_MAX_PARENTS]]
    return [(each, chance) for each, chance in likely if chance > _MIN_PROBABILITY]


MIN_RANKING_SCORE = -4.0
"""Minimum score at which a line is worth its tokens for a model that sees the last lines anyway:
more than a third of the older lines above it belong to the question."""

_PERMILLE = 1000
_chances = Bins((1, 3, 7, 14, 29, 49, 79, 119, 179, 259, 359, 479, 619, 779, 899), _PERMILLE)
_coarse = Bins((1, 19, 79, 199, 449, 749), _PERMILLE)
_ranking_distances = Bins((1, 2, 3, 5, 8, 12, 17, 22, 30, 40, 55, 75, 100, 140, 190, 240), 300)
_ranking_gaps = Bins((0, 1, 2, 3, 5, 8, 12, 20, 40, 90), 91)
_ranking_shares = Bins((0, 5, 12, 20, 32, 50, 80, 130, 200), MAX_SHARED_WEIGHT)
_counts = Bins((1, 2, 4, 8, 16), 17)

_ranking_layout = WeightLayout()
_CHANCE = _ranking_layout.block(_chances.bins)
_RELATION = _ranking_layout.block(len(AUTHOR_RELATIONS), _coarse.bins)
_RANKING_DISTANCE = _ranking_layout.block(len(AUTHOR_RELATIONS), _ranking_distances.bins)
_RANKING_GAP = _ranking_layout.block(_ranking_gaps.bins)
_RANKING_SHARED = _ranking_layout.block(len(AUTHOR_RELATIONS), _ranking_shares.bins)
_RANKING_KIND = _ranking_layout.block(len(AUTHOR_RELATIONS), len(ADDRESSEE_RELATIONS))
_SPEAKER = _ranking_layout.block(_coarse.bins, _coarse.bins)
_COUNT = _ranking_layout.block(_counts.bins)
RANKING_SIZE = _ranking_layout.size


_RANKING_INDICES = [
    (
        range(_RELATION + relation * _coarse.bins, _RELATION + (relation + 1) * _coarse.bins),
        _ranking_distances.indices(_RANKING_DISTANCE, relation),
        _ranking_shares.indices(_RANKING_SHARED, relation),
        range(
            _RANKING_KIND + relation * len(ADDRESSEE_RELATIONS),
            _RANKING_KIND + (relation + 1) * len(ADDRESSEE_RELATIONS),
        ),
    )
    for relation in AUTHOR_RELATIONS
]
"""Weight indices of the ranking model by relation, precomputed because each question ranks some
hundred lines."""

_CHANCES, _GAPS = _chances.indices(_CHANCE, 0), _ranking_gaps.indices(_RANKING_GAP, 0)


def ranking_features(
    reply: ReplyFeatures, earlier: list[Utterance], chances: Mapping[int, float]
) -> list[Features]:
    """Return the features of each line of `earlier`; `chances` has the probabilities of being in
    one conversation with `reply`, by line number."""
    n, shared, longest = reply.line.n, reply.shared, _ranking_gaps.most
    permille = {line: min(int(_PERMILLE * each), _PERMILLE) for line, each in chances.items()}
    speakers = _speakers(earlier, permille)
    rows: list[Features] = []
    for each in earlier:
        relations, distances, shares, kinds = _RANKING_INDICES[reply.author_relation(each)]
        chance = permille.get(each.n, 0)
        coarse = _coarse[chance]
        speaker, count = speakers[each.speaker]
        rows.append(
            (
                _CHANCES[chance],
                relations[coarse],
                distances[n - each.n],
                _GAPS[min(reply.minutes_since(each), longest)],
                shares[shared.get(each.n, 0)],
                kinds[reply.addressee_relation(each)],
                speaker + coarse,
                count,
            )
        )
    return rows


def _speakers(earlier: list[Utterance], permille: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return two weight indices by speaker: the row of their likeliest line, and the bin of their
    number of lines."""
    highest: dict[int, int] = {}
    for each in earlier:
        chance = permille.get(each.n, 0)
        if chance >= highest.get(each.speaker, 0):
            highest[each.speaker] = chance
    said = Counter(each.speaker for each in earlier)
    return {
        speaker: (
            _SPEAKER + _coarse[chance] * _coarse.bins,
            _COUNT + _counts[min(said[speaker], _counts.most)],
        )
        for speaker, chance in highest.items()
    }


def rank(
    weights: Weights,
    reply: ReplyFeatures,
    earlier: list[Utterance],
    chances: Mapping[int, float],
    most: int,
    least: float,
) -> list[Utterance]:
    """Return at most `most` lines of `earlier` (newest first) that belong to `reply`, likeliest
    first, and only those with a score of at least `least`."""
    scores = [
        weights[a] + weights[b] + weights[c] + weights[d]
        + weights[e] + weights[f] + weights[g] + weights[h]
        for a, b, c, d, e, f, g, h in ranking_features(reply, earlier, chances)
    ]  # fmt: skip
    order = sorted(range(len(earlier)), key=scores.__getitem__, reverse=True)
    return [earlier[index] for index in order[:most] if scores[index] >= least]
