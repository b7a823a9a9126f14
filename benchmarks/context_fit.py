"""Fit the models of `llm/threads` to logs with reply links, and write `model.json`.

    python -m benchmarks.context_fit ../shared/data/ubuntu-irc/train

Needs numpy and scipy. Fits the link model to each line's annotated parents, then, using it, the
ranking model to the lines of each sample's conversation. For the ranking model every sample is
used twice: unchanged, and without the nicks that it mentions, as if addressed to the bot. Only the
given folder is read, so the other splits remain unseen test data.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

import llm.threads
from benchmarks.context_data import Annotated, Said, annotated, follow, stripped
from llm.threads.channel_threads import Threads
from llm.threads.model import (
    LINK_SIZE,
    RANKING_SIZE,
    Features,
    ThreadModel,
    link_features,
    ranking_features,
    start_features,
    words,
)

MODEL = Path(llm.threads.__file__ or "").with_name("model.json")
_FREQUENT = 60  # lines that must contain a word for it to be listed in the model
_EVERY = 7  # the ranking model is fitted to every seventh sample
_STEPS = 60
_PENALTY = 2.0  # L2 regularisation

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Sample:
    """The features of a line's candidates (indexes of weights), and their target probabilities."""

    rows: list[Features]
    shares: list[float]


Samples = Callable[[Annotated, Threads], Iterator[Sample]]


def counted(files: list[Annotated]) -> ThreadModel:
    """Return a model with word counts but without weights."""
    said = [event for file in files for event in file.lines if isinstance(event, Said)]
    counts = Counter(word for event in said for word in words(event.text))
    frequent = {word: count for word, count in counts.items() if count >= _FREQUENT}
    return ThreadModel([], [], dict(sorted(frequent.items())), len(said))


def parent_samples(file: Annotated, threads: Threads) -> Iterator[Sample]:
    """Yield for each annotated line its candidate parents and, as the last candidate, the start of
    a conversation; skip lines whose annotated parents are all out of reach."""
    parents: dict[int, set[int]] = {}
    for first, second in file.links:
        parents.setdefault(second, set()).add(first)
    for index, said, numbers in follow(file, threads):
        if index not in parents:
            continue
        right = {numbers.get(parent) for parent in parents[index]}
        reply = threads.reply(threads.utterance(said.nick, said.text, said.minute))
        near = threads.link_candidates()
        rows = link_features(reply, near)
        hits = [line.n in right for line in near]
        start = index in parents[index]
        if found := sum(hits) + start:
            rows.append(start_features(reply, threads.since(reply.line)))
            yield Sample(rows, [hit / found for hit in [*hits, start]])


def conversation_samples(file: Annotated, threads: Threads) -> Iterator[Sample]:
    """Yield for every seventh sample, unchanged and stripped, the lines that could belong to its
    conversation."""
    samples = file.samples()
    chosen = {index: samples[index] for index in list(samples)[::_EVERY]}
    for index, said, numbers in follow(file, threads):
        for text in (said.text, stripped(said.text, threads.people)) if index in chosen else ():
            reply = threads.reply(threads.utterance(said.nick, text, said.minute))
            right = {numbers[line] for line in chosen[index]}
            lines = threads.ranking_candidates()
            rows = ranking_features(reply, lines, threads.same_conversation_probabilities(reply))
            yield Sample(rows, [(line.n in right) / len(right) for line in lines])


@dataclass(frozen=True, slots=True)
class Table:
    """Samples as a sparse matrix of binary features, one row per candidate.

    `places` (rows, width) has the weight indexes of each row's features, padded with -1, `shares`
    (rows) the targets, and `starts` (samples) the first row of each sample.
    """

    places: Ints
    shares: Floats
    starts: Ints

    @classmethod
    def of(cls, files: list[Annotated], model: ThreadModel, samples: Samples) -> Table:
        """Return the table of the samples of all files, each replayed to fresh threads."""
        found = [sample for file in files for sample in samples(file, Threads(model))]
        widest = max(len(row) for sample in found for row in sample.rows)
        places = [(*row, *[-1] * (widest - len(row))) for sample in found for row in sample.rows]
        shares = [share for sample in found for share in sample.shares]
        sizes = [len(sample.rows) for sample in found]
        starts = np.cumsum([0, *sizes[:-1]], dtype=np.int32)
        return cls(np.array(places, np.int32), np.array(shares), starts)

    def scores(self, weights: Floats) -> Floats:
        """Return the score of each row: the sum of its features' weights."""
        padded = np.append(weights, 0)  # index -1, the padding, selects this zero
        scores = np.zeros(len(self.shares))
        for column in self.places.T:
            scores += padded[column]
        return scores

    def gradient(self, by_row: Floats, size: int) -> Floats:
        """Return the gradient with respect to the weights, given that with respect to the
        scores."""
        gradient = np.zeros(size)
        for column in self.places.T:
            # `bincount` takes no negative values: shift by one, then drop the padding's bin.
            gradient += np.bincount(column + 1, by_row, size + 1)[1:]
        return gradient


def softmax_loss(table: Table, scores: Floats) -> tuple[float, Floats]:
    """Return the summed cross-entropy of each sample's candidates, and its derivative by score."""
    sizes = np.diff(np.append(table.starts, len(scores)))
    # Subtract each sample's maximum before `exp`, so that it cannot overflow.
    most = np.maximum.reduceat(scores, table.starts)
    powers = np.exp(scores - np.repeat(most, sizes))
    whole = np.add.reduceat(powers, table.starts)
    loss = float((np.log(whole) + most).sum() - (table.shares * scores).sum())
    by_row: Floats = powers / np.repeat(whole, sizes) - table.shares
    return loss, by_row


def logistic_loss(table: Table, scores: Floats) -> tuple[float, Floats]:
    """Return the log loss of all rows and its derivative by score.

    Rows are weighted so that the right lines of each sample weigh 1 in total, as in coverage: a
    line of a short conversation counts more.
    """
    sizes = np.diff(np.append(table.starts, len(scores)))
    weight = np.repeat(np.maximum.reduceat(table.shares, table.starts), sizes)
    right = table.shares > 0
    loss = float((weight * (np.logaddexp(0, scores) - right * scores)).sum())
    return loss, weight * (1 / (1 + np.exp(-scores)) - right)


def fit(
    table: Table, size: int, loss: Callable[[Table, Floats], tuple[float, Floats]]
) -> list[float]:
    """Return the `size` weights that minimise loss plus L2 penalty (L-BFGS)."""

    def objective(weights: Floats) -> tuple[float, Floats]:
        value, by_row = loss(table, table.scores(weights))
        penalty = _PENALTY / 2 * float(weights @ weights)
        return value + penalty, table.gradient(by_row, size) + _PENALTY * weights

    options = {"maxiter": _STEPS}
    found = minimize(objective, np.zeros(size), jac=True, method="L-BFGS-B", options=options)
    print(f"  {len(table.starts)} samples, loss {found.fun / len(table.starts):.4f}", flush=True)
    return [round(float(weight), 3) for weight in found.x]


def main() -> None:
    """Fit both models to the folder given on the command line and write `model.json`."""
    files = list(annotated(Path(sys.argv[1])))
    model = counted(files)
    unfitted = replace(model, links=[0.0] * LINK_SIZE, ranking=[0.0] * RANKING_SIZE)
    table = Table.of(files, unfitted, parent_samples)
    linked = replace(unfitted, links=fit(table, LINK_SIZE, softmax_loss))
    table = Table.of(files, linked, conversation_samples)
    done = replace(linked, ranking=fit(table, RANKING_SIZE, logistic_loss))
    MODEL.write_text(json.dumps(asdict(done), ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
