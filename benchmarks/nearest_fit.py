"""Fit the weights of `storage/passages/nearest.py` and print them.

    python -m benchmarks.nearest_fit

Fits a softmax over 300 lines, one of which is the fact that the question is about. Only paraphrases
of the seen halves are used (`questions/history_seen.json`, `channel.json`). The weight of
"addressed" is fixed, because no planted fact addresses a person by name, while in real logs many
do. Cross-validation by fact estimates how well the weights generalise; the unseen halves are only
evaluated. Needs numpy.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from benchmarks.answers.questions import Half, SetItem, questions
from benchmarks.answers.room import chatter
from storage.passages.nearest import FEATURES, MeantQuestion
from storage.passages.score import SpokenLine
from storage.passages.words import question_words

_LINES = 300
_FACTS = 30  # other facts among the lines
_POOL = 9_000
_FOLDS = 5
_STEPS, _RATE, _PENALTY = 1_500, 0.05, 0.01
_SET = {"addressed": -1.0}

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankingTask:
    """The features of all lines for one question, of shape (lines, FEATURES), right line first."""

    half: Half
    features: Floats


def tasks() -> Iterator[RankingTask]:
    """Yield a task for each paraphrase: its fact, other facts, and lines of chatter."""
    chance = random.Random(1)
    pool = list(islice(chatter(), _POOL))
    for name in ("history_seen", "history_unseen", "channel"):
        items = questions(name, "items" if name == "channel" else "facts")
        for item in items:
            others = [(each.nick, each.text) for each in items if each is not item]
            told = chance.sample(others, _FACTS)
            lines = [(item.nick, item.text), *told, *chance.sample(pool, _LINES - 1 - _FACTS)]
            half: Half = "seen" if name == "history_seen" else item.half
            yield RankingTask(half, _features(item, lines))


def _features(item: SetItem, lines: Sequence[tuple[str, str]]) -> Floats:
    asking = MeantQuestion(question_words(item.paraphrase))
    return np.array([asking.features(SpokenLine.from_text(text, nick)) for nick, text in lines])


def fitted(samples: Sequence[RankingTask]) -> Floats:
    """Return the weights that minimise the cross-entropy of the right lines (Adam)."""
    weights, mean, square = (np.zeros(len(FEATURES)) for _ in range(3))
    for _ in range(_STEPS):
        gradient = _PENALTY * weights
        for sample in samples:
            logits = sample.features @ weights
            shares = np.exp(logits - logits.max())
            shares /= shares.sum()
            gradient += (shares @ sample.features - sample.features[0]) / len(samples)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        weights -= _RATE * mean / (np.sqrt(square) + 1e-8)
        # Reset after each step, so that the other weights are fitted given the fixed ones.
        for name, value in _SET.items():
            weights[FEATURES.index(name)] = value
    return weights


def among(number: int, samples: Sequence[RankingTask], weights: Floats) -> int:
    """Return for how many samples the right line is one of the best `number`."""
    logits = [sample.features @ weights for sample in samples]
    return sum(int((each > each[0]).sum() < number) for each in logits)


def main() -> None:
    """Print the weights, and how often the right line is among the best 1, 3 and 10."""
    everything = list(tasks())
    seen = [task for task in everything if task.half == "seen"]
    unseen = [task for task in everything if task.half == "unseen"]
    left_out = [
        [among(number, seen[fold::_FOLDS], weights) for number in (1, 3, 10)]
        for fold in range(_FOLDS)
        for weights in [fitted([task for i, task in enumerate(seen) if i % _FOLDS != fold])]
    ]
    weights = fitted(seen)
    for name, value in zip(FEATURES, weights, strict=True):
        print(f'    "{name}": {value:.2f},')
    print("first, among three, among ten")
    print(f"  left out: {np.sum(left_out, axis=0)} of {len(seen)}")
    print(f"  unseen: {[among(number, unseen, weights) for number in (1, 3, 10)]} of {len(unseen)}")


if __name__ == "__main__":
    main()
