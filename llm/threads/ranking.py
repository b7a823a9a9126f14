"""The ranking model: the lines, of the last few hundred, that belong to a question.

The probability of one conversation says much, but not all: who else of the conversation said a
line, how long ago, and what words it shares say more. A logit, fitted to the hand-made reply links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from llm.threads.model import (
    KINDS,
    MOST_SHARED,
    RELATIONS,
    Bins,
    Features,
    ReplyFeatures,
    Utterance,
    WeightLayout,
    Weights,
)

LIKELY = -4.0
"""The score from which on a line is worth its tokens to a model that sees the last lines anyway: of
the older lines above it more than a third belong to the question."""

_PERMILLE = 1000
_chances = Bins((1, 3, 7, 14, 29, 49, 79, 119, 179, 259, 359, 479, 619, 779, 899), _PERMILLE)
_coarse = Bins((1, 19, 79, 199, 449, 749), _PERMILLE)
_distances = Bins((1, 2, 3, 5, 8, 12, 17, 22, 30, 40, 55, 75, 100, 140, 190, 240), 300)
_gaps = Bins((0, 1, 2, 3, 5, 8, 12, 20, 40, 90), 91)
_shares = Bins((0, 5, 12, 20, 32, 50, 80, 130, 200), MOST_SHARED)
_counts = Bins((1, 2, 4, 8, 16), 17)

_layout = WeightLayout()
_CHANCE = _layout.block(_chances.bins)
_RELATION = _layout.block(len(RELATIONS), _coarse.bins)
_DISTANCE = _layout.block(len(RELATIONS), _distances.bins)
_GAP = _layout.block(_gaps.bins)
_SHARED = _layout.block(len(RELATIONS), _shares.bins)
_KIND = _layout.block(len(RELATIONS), len(KINDS))
_SPEAKER = _layout.block(_coarse.bins, _coarse.bins)
_COUNT = _layout.block(_counts.bins)
SIZE = _layout.size


_PLACES = [
    (
        range(_RELATION + relation * _coarse.bins, _RELATION + (relation + 1) * _coarse.bins),
        _distances.indices(_DISTANCE, relation),
        _shares.indices(_SHARED, relation),
        range(_KIND + relation * len(KINDS), _KIND + (relation + 1) * len(KINDS)),
    )
    for relation in RELATIONS
]
"""The indices of the bins by relation, computed once, not for each line."""

_CHANCES, _GAPS = _chances.indices(_CHANCE, 0), _gaps.indices(_GAP, 0)


def features(
    reply: ReplyFeatures, earlier: list[Utterance], chances: Mapping[int, float]
) -> list[Features]:
    """Return the features of each line of `earlier`; `chances` are those of one conversation."""
    n, shared, longest = reply.line.n, reply.shared, _gaps.most
    permille = {line: min(int(_PERMILLE * each), _PERMILLE) for line, each in chances.items()}
    speakers = _speakers(earlier, permille)
    rows: list[Features] = []
    for each in earlier:
        relations, distances, shares, kinds = _PLACES[reply.relation(each)]
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
                kinds[reply.kind(each)],
                speaker + coarse,
                count,
            )
        )
    return rows


def _speakers(earlier: list[Utterance], permille: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """By speaker: where the row of their likeliest line begins, and the bin of how many there
    are."""
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


def best(
    weights: Weights,
    reply: ReplyFeatures,
    earlier: list[Utterance],
    chances: Mapping[int, float],
    most: int,
    least: float,
) -> list[Utterance]:
    """Return the `most` lines of `earlier` (newest first) that belong to `reply`, likeliest first,
    and none with a score under `least`."""
    scores = [
        weights[a] + weights[b] + weights[c] + weights[d]
        + weights[e] + weights[f] + weights[g] + weights[h]
        for a, b, c, d, e, f, g, h in features(reply, earlier, chances)
    ]  # fmt: skip
    order = sorted(range(len(earlier)), key=scores.__getitem__, reverse=True)
    return [earlier[index] for index in order[:most] if scores[index] >= least]
