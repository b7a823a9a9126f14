"""Fit the weights of `storage/passages/score.py` and write them to its `weights.json`.

    python -m benchmarks.passages_fit

Uses only the seen questions (`questions/history_seen.json` and `questions/dialogues`), in the logs
of `benchmarks/passages.py`. The weighted sum of a line's features is the log-odds that it is the
answer rather than no line at all. Questions without an answer count more, as a wrong answer is
worse than none, and so do those about real talks, where an answer rests on the lines before it.
Each question is asked with its vector and without one. The signs of some weights are constrained.
Cross-validation by fact estimates how well the weights generalise. The mean of the lines'
embeddings is written to `storage/search/mean.json` first. The result is the same each time on one
machine. Needs numpy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks import ubuntu
from benchmarks.dialogues import dialogues
from benchmarks.embedder import BenchEmbedder
from benchmarks.passages import (
    CHATTER,
    Fact,
    QuestionFile,
    bench_embedder,
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
from storage.passages.passages import PEOPLE, Passage, PassageSearch, compare
from storage.passages.score import FEATURES, WEIGHTS, chances
from storage.search.vectors import MEAN, encode, likeness

_PENALTY = 0.3  # L2 regularisation
_FOLDS = 5
_WRONG = 1.5  # weight of a question that no line answers, if its subject is not spoken of either
_TALK = 4  # weight of a question about the talk of a small channel, which is what people ask
_MOST = 3  # lines of the large log that are embedded for a question
_MEAN_LINES = 5_000
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

_LINES = 30  # of a question that are samples: those that are most like an answer
_LIKELY = np.array(
    [
        {"coverage": 1, "meaning": 2, "meaning in talk": 2, "reply": 1, "asks": -0.3}.get(name, 0)
        for name in FEATURES
    ]
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Samples:
    """The candidate lines of one question.

    `rows` has their features (lines, FEATURES), `right` 1 for the right line and else 0. `fold` is
    the fold of cross-validation that tests the question, `kind` its log and type.
    """

    rows: Floats
    right: Floats
    fold: int
    kind: str

    @property
    def counts(self) -> float:
        """The weight of the question."""
        is_wrong = not self.right.any() and " near " not in self.kind
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
    for known, kind in ((None, "words"), (vector, "meaning")):

        def read(db: Connection, known: Sequence[float] | None = known) -> list[Passage]:
            search = PassageSearch.prepare(db, asked.text, query, PEOPLE, known)
            return search.candidates() if search else []

        lines = await database.read(read)
        if known and log == "million":
            best = sorted(lines, key=lambda each: -each.coverage)[:_MOST]
            made = await embedder.cached([each.event.text for each in best])
            near = {e.event.id: likeness(encode(vector), encode(made[e.event.text])) for e in best}
            lines = [
                replace(each, likeness=near.get(each.event.id, each.likeness)) for each in lines
            ]
        rows = np.array(list(compare(lines))).reshape(-1, len(FEATURES))
        said = [(each.event.nick, each.event.text) for each in lines]
        right = np.array([float(each in asked.right) for each in said])
        if asked.right and not right.any():
            continue  # the answer is a question, or was not found
        likely = np.argsort(-(rows @ _LIKELY + 9 * right), kind="stable")[:_LINES]
        rows, right = rows[likely], right[likely]
        found.append(Samples(rows, right, asked.fold, f"{log} {asked.kind} {kind}"))
    return found


def fit(found: Sequence[Samples]) -> Floats:
    """Return the weights of a conditional logit model: for each question either one of its lines is
    the answer, or none is.

    They minimise the weighted log loss plus an L2 penalty within their signs, by Newton's method; a
    weight that would get the wrong sign stays 0.
    """
    rows = np.concatenate([each.rows for each in found])
    lengths = [len(each.rows) for each in found]
    starts = np.cumsum([0, *lengths[:-1]])
    question = np.repeat(np.arange(len(found)), lengths)
    right = np.concatenate([each.right / max(1, each.right.sum()) for each in found])
    counts = np.array([each.counts for each in found])
    sign = np.array([(name in _POSITIVE) - (name in _NEGATIVE) for name in FEATURES])
    weights = np.zeros(len(FEATURES))
    weights[0] = -5
    for _ in range(_STEPS):
        scores = np.clip(rows @ weights, -40, 40)
        most = np.maximum(np.maximum.reduceat(scores, starts), 0)  # 0: the score of no line
        raised = np.exp(scores - most[question])
        chances = raised / (np.add.reduceat(raised, starts) + np.exp(-most))[question]
        gradient = rows.T @ (counts[question] * (chances - right)) + _PENALTY * weights
        free = ~((sign != 0) & (weights == 0) & (sign * gradient >= 0))
        kept = rows[:, free]
        mean = np.add.reduceat(kept * chances[:, None], starts, axis=0)
        hessian = kept.T @ (kept * (counts[question] * chances)[:, None])
        hessian += _PENALTY * np.eye(kept.shape[1]) - mean.T @ (mean * counts[:, None])
        step = np.zeros(len(FEATURES))
        step[free] = np.linalg.solve(hessian, gradient[free])
        weights = weights - step * min(1.0, _LONGEST_STEP / np.abs(step).max())
        weights[(sign != 0) & (sign * weights < 0)] = 0
    return weights


def report(found: Sequence[Samples], weights: Mapping[int, Floats]) -> None:
    """Print by kind how often the right line is the first, and how often the first one is shown as
    a possible or as the sure answer; where a line is right, only if it is that one.

    `weights` has for each fold those fitted without it.
    """
    for kind in sorted({each.kind for each in found}):
        group = [each for each in found if each.kind == kind]
        first, perhaps, sure = 0, 0, 0
        for each in group:
            scores = each.rows @ weights[each.fold]
            best = int(np.argmax(scores))
            counts = bool(each.right[best]) or not each.right.any()
            chance = chances([float(score) for score in scores])[best]
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
    async with bench_embedder() as embedder:
        await write_mean(embedder)
        return await samples(embedder)


def main() -> None:
    """Print cross-validated results, then write the weights fitted to all seen questions."""
    found = asyncio.run(all_samples())
    parts = {fold: fit([each for each in found if each.fold != fold]) for fold in range(_FOLDS)}
    report(found, parts)
    weights = {name: round(float(w), 2) for name, w in zip(FEATURES, fit(found), strict=True)}
    WEIGHTS.write_text(json.dumps(weights, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
