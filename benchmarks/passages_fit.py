"""Fit the model of `storage/passages/score.py` and write it to its `weights.json` and `trees.json`.

    python -m benchmarks.passages_fit

Uses only the seen questions (`questions/history_seen.json` and `questions/dialogues`), in the logs
of `benchmarks/passages.py`. The weighted sum of a line's features is the log-odds that it is the
answer rather than no line at all. Questions without an answer count more, as a wrong answer is
worse than none, and so do those about real talks, where an answer rests on the lines before it.
Each question is asked with its vector and without one. The signs of some weights are constrained.
Then trees are boosted on the gradient of the same loss, with the questions that have a vector.
Cross-validation by fact estimates how well the weights generalise. The mean of the lines'
embeddings is written to `storage/search/mean.json` first. The result is the same each time on one
machine. Needs numpy and lightgbm.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from benchmarks import ubuntu
from benchmarks.dialogues import dialogues
from benchmarks.embedder import BenchEmbedder
from benchmarks.passages import (
    CHATTER,
    Fact,
    QuestionFile,
    chatter,
    crowd_of,
    crowded,
    crowds,
    history,
    known_to_all,
    place_of,
    question_files,
    talk,
)
from llm.retrieval import PERHAPS, SURE
from storage.chat_log.event import PUBLIC, SPOKEN, Scope
from storage.chat_log.event_table import Query
from storage.connection import Connection
from storage.db.database import Database
from storage.passages.passages import MOST_RANKED, PEOPLE, Passage, PassageSearch, compare
from storage.passages.score import FEATURES, TREES, WEIGHTS, chances
from storage.search.vectors import MEAN, Likeness, encode, likeness

_PENALTY = 0.3  # L2 regularisation
_FOLDS = 5
_WRONG = 1.5  # weight of a question that no line answers, if its subject is not spoken of either
_TALK = 4  # weight of a question about the talk of a small channel, which is what people ask
_MOST = 3  # lines of the large log that are embedded for a question
_MEAN_LINES = 5_000
_MEANING = "meaning"
_TREES = 150
_BOOSTING = {
    "learning_rate": 0.05,
    "num_leaves": 8,
    "min_data_in_leaf": 80,
    "lambda_l2": 20,
    "feature_fraction": 0.5,
    "seed": 1,
    "deterministic": True,
    "verbosity": -1,
}
_STEPS, _LONGEST_STEP = 25, 1.5  # of Newton's method
_POSITIVE = frozenset(
    ("coverage", "all words", "shows", "speaker", "reply",
     "states all", "meaning", "outstanding", "coverage before", "meaning before",
     "meaning of a question before", "meaning just before", "meaning of a question just before",
     "meaning in talk", "outstanding in talk")
)  # fmt: skip
_NEGATIVE = frozenset(
    ("heaviest missing", "asks", "lacks", "length", "short", "nothing new", "name missing",
     "speaker alone", "log size", "commonplace", "link")
)  # fmt: skip

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Samples:
    """The candidate lines of one question.

    `rows` has their features (lines, FEATURES), `right` 1 for the right line and else 0. `fold` is
    the fold of cross-validation that tests the question, `kind` its log and type.
    """

    rows: NDArray[np.float32]
    right: Floats
    fold: int
    kind: str
    has_answer: bool

    def ranked(self, weights: Floats) -> Samples:
        """Return the lines that are ranked: those with the greatest log-odds by `weights`."""
        best = np.argsort(-(self.rows @ weights), kind="stable")[:MOST_RANKED]
        return replace(self, rows=self.rows[best], right=self.right[best])

    @property
    def knows_meaning(self) -> bool:
        """True if the question was asked with its vector."""
        return self.kind.endswith(_MEANING)

    @property
    def counts(self) -> float:
        """The weight of the question."""
        is_wrong = not self.has_answer and " near " not in self.kind
        return (_TALK if self.kind.startswith("talk") else 1) * (_WRONG if is_wrong else 1)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the lines that are `right`, each a nick and a text. `fact` has the channel
    where it is asked, unless that is a dialogue."""

    text: str
    right: frozenset[tuple[str, str]]
    kind: str
    fold: int
    fact: Fact | None = None


async def samples(embedder: BenchEmbedder) -> list[Samples]:
    """Return the samples of all questions, in the large log and in channels."""
    found = []
    files = question_files()
    asked = list(questions(files[0]))
    await embedder.cached([each.text for each in asked], query=True)
    async with Database.open(await history(files, embedder)) as database:
        for each in asked:
            found += await _samples(database, embedder, each, PUBLIC, "million")
    async with Database.open(await chatter(files, embedder)) as database:
        for size in CHATTER:
            for each in asked:
                assert each.fact
                scope = Scope.from_places(place_of(each.fact, size))
                found += await _samples(database, embedder, each, scope, str(size))
    async with Database.open(await crowds(files, embedder)) as database:
        crowd = crowd_of(files[0])
        for each in questions(crowd):
            scope = Scope.from_places(crowded(crowd))
            found += await _samples(database, embedder, each, scope, "crowd")
    talks = list(dialogues("seen"))
    asked_there = [question.text for dialogue in talks for question in dialogue.questions]
    await embedder.cached(asked_there, query=True)
    async with Database.open(await talk(talks, embedder)) as database:
        for number, dialogue in enumerate(talks):
            scope = Scope.from_places(dialogue.place)
            for question in dialogue.questions:
                asks = Asked(question.text, question.answers, question.kind, number % _FOLDS)
                found += await _samples(database, embedder, asks, scope, "talk")
    return [each for each in found if len(each.rows)]


def questions(file: QuestionFile) -> Iterator[Asked]:
    """Yield the questions of a file and of general knowledge."""
    for number, fact in enumerate(file.facts):
        fold, right = number % _FOLDS, frozenset([(fact.nick, fact.text)])
        yield Asked(fact.question, right, "literal", fold, fact)
        for text in fact.paraphrases:
            yield Asked(text, right, "paraphrased", fold, fact)
        if fact.near:
            yield Asked(fact.near, frozenset(), "near", fold, fact)
    for kind, texts in (("never", file.never), ("general", known_to_all("seen"))):
        for number, text in enumerate(texts):
            fact = file.facts[number % len(file.facts)]
            yield Asked(text, frozenset(), kind, number % _FOLDS, fact)


async def _samples(
    database: Database, embedder: BenchEmbedder, asked: Asked, scope: Scope, log: str
) -> list[Samples]:
    """Return the samples of a question without its vector, and with it."""
    vector = (await embedder.cached([asked.text], query=True))[asked.text]
    query = Query(scope=scope, limit=10)
    found = []
    for known, kind in ((None, "words"), (vector, _MEANING)):

        def read(db: Connection, known: Sequence[float] | None = known) -> list[Passage]:
            search = PassageSearch.prepare(db, asked.text, query, PEOPLE, known)
            return search.candidates() if search else []

        lines = await database.read(read)
        if known and log == "million":
            best = sorted(lines, key=lambda each: -each.coverage)[:_MOST]
            made = await embedder.cached([each.event.text for each in best])
            cosines = (likeness(encode(vector), encode(made[each.event.text])) for each in best)
            near = {e.event.id: Likeness(c, c) for e, c in zip(best, cosines, strict=True)}
            lines = [
                replace(each, likeness=near.get(each.event.id, each.likeness)) for each in lines
            ]
        rows = np.array(list(compare(lines)), np.float32).reshape(-1, len(FEATURES))
        said = [(each.event.nick, each.event.text) for each in lines]
        right = np.array([float(each in asked.right) for each in said])
        if asked.right and not right.any():
            continue  # the answer is a question, or was not found
        found.append(
            Samples(rows, right, asked.fold, f"{log} {asked.kind} {kind}", bool(asked.right))
        )
    return found


class Loss:
    """The loss of a conditional logit model: for each question either one of its lines is the
    answer, or none is. Arrays have a number for each line, `counts` one for each question."""

    def __init__(self, found: Sequence[Samples]) -> None:
        lengths = [len(each.rows) for each in found]
        self.starts = np.cumsum([0, *lengths[:-1]])
        self.question = np.repeat(np.arange(len(found)), lengths)
        self.right = np.concatenate([each.right / max(1, each.right.sum()) for each in found])
        self.counts = np.array([each.counts for each in found])

    def chances(self, odds: Floats) -> Floats:
        """Return the probability that a line is the answer."""
        scores = np.clip(odds, -40, 40)
        most = np.maximum(np.maximum.reduceat(scores, self.starts), 0)  # 0: the score of no line
        raised = np.exp(scores - most[self.question])
        whole = np.add.reduceat(raised, self.starts) + np.exp(-most)
        return np.asarray(raised / whole[self.question], np.float64)


def fit(found: Sequence[Samples]) -> Floats:
    """Return the weights of the linear model.

    They minimise the weighted log loss plus an L2 penalty within their signs, by Newton's method; a
    weight that would get the wrong sign stays 0.
    """
    rows, loss = np.concatenate([each.rows for each in found]), Loss(found)
    counts = loss.counts
    sign = np.array([(name in _POSITIVE) - (name in _NEGATIVE) for name in FEATURES])
    weights = np.zeros(len(FEATURES))
    weights[0] = -5
    for _ in range(_STEPS):
        chances = loss.chances(rows @ weights)
        gradient = rows.T @ (counts[loss.question] * (chances - loss.right)) + _PENALTY * weights
        free = ~((sign != 0) & (weights == 0) & (sign * gradient >= 0))
        kept = rows[:, free]
        mean = np.add.reduceat(kept * chances[:, None], loss.starts, axis=0)
        hessian = kept.T @ (kept * (counts[loss.question] * chances)[:, None])
        hessian += _PENALTY * np.eye(kept.shape[1]) - mean.T @ (mean * counts[:, None])
        step = np.zeros(len(FEATURES))
        step[free] = np.linalg.solve(hessian, gradient[free])
        weights = weights - step * min(1.0, _LONGEST_STEP / np.abs(step).max())
        weights[(sign != 0) & (sign * weights < 0)] = 0
    return weights


def boost(found: Sequence[Samples], weights: Floats) -> lightgbm.Booster:
    """Return trees that correct the log-odds by `weights`, of the lines that are ranked for the
    questions that have a vector."""
    known = [each.ranked(weights) for each in found if each.knows_meaning]
    known = [each for each in known if each.right.any() or not each.has_answer]
    rows = np.concatenate([each.rows for each in known])
    loss = Loss(known)

    def objective(odds: Floats, _: lightgbm.Dataset) -> tuple[Floats, Floats]:
        chances = loss.chances(odds)
        counts = loss.counts[loss.question]
        return counts * (chances - loss.right), counts * np.maximum(chances * (1 - chances), 1e-4)

    data = lightgbm.Dataset(rows, loss.right, init_score=rows @ weights)
    return lightgbm.train({**_BOOSTING, "objective": objective}, data, _TREES)


def packed(node: Mapping[str, Any]) -> Any:
    """Return a tree of LightGBM as `storage.passages.score` reads it."""
    if "leaf_value" in node:
        return round(node["leaf_value"], 4)
    branches = (packed(node[f"{side}_child"]) for side in ("left", "right"))
    return [node["split_feature"], round(node["threshold"], 6), *branches]


def report(found: Sequence[Samples], odds: Sequence[Floats]) -> None:
    """Print by kind how often the right line is the first, and how often the first one is shown as
    a possible or as the sure answer; where a line is right, only if it is that one.

    `odds` has the log-odds of the lines of each question.
    """
    for kind in sorted({each.kind for each in found}):
        group = [(each, own) for each, own in zip(found, odds, strict=True) if each.kind == kind]
        first, perhaps, sure = 0, 0, 0
        for each, own in group:
            best = int(np.argmax(own))
            counts = bool(each.right[best]) or not each.has_answer
            chance = chances(own.tolist())[best]
            first += bool(each.right[best])
            perhaps += counts and chance >= PERHAPS
            sure += counts and chance >= SURE
        print(
            f"  {kind:30} of {len(group):3}: first {first:3}, shown {perhaps:3}, sure {sure:3}",
            flush=True,
        )


async def write_mean(embedder: BenchEmbedder) -> None:
    """Write the mean of the embeddings of lines."""
    said = [text for kind, _, text in ubuntu.lines() if kind in SPOKEN][:_MEAN_LINES]
    made = await embedder.cached(said)
    mean = np.mean(list(made.values()), axis=0)
    MEAN.write_text(json.dumps([round(float(value), 4) for value in mean]), encoding="utf-8")


async def all_samples() -> list[Samples]:
    """Write the mean, then return all samples."""
    async with BenchEmbedder.open() as embedder:
        await write_mean(embedder)
        return await samples(embedder)


def main() -> None:
    """Print cross-validated results, then write the model fitted to all seen questions."""
    found = asyncio.run(all_samples())
    odds, tested = [np.empty(0)] * len(found), list(found)
    for fold in range(_FOLDS):
        others = [each for each in found if each.fold != fold]
        weights = fit(others)
        trees = boost(others, weights)
        for number, each in enumerate(found):
            if each.fold == fold:
                best = each.ranked(weights)
                odds[number] = best.rows @ weights
                if each.knows_meaning:
                    odds[number] += trees.predict(best.rows, raw_score=True)
                tested[number] = best
    report(tested, odds)
    weights = fit(found)
    named = {name: round(float(each), 2) for name, each in zip(FEATURES, weights, strict=True)}
    WEIGHTS.write_text(json.dumps(named, indent=1) + "\n", encoding="utf-8")
    boosted = boost(found, weights).dump_model()["tree_info"]
    roots = (packed(each["tree_structure"]) for each in boosted)
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in roots)
    TREES.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
