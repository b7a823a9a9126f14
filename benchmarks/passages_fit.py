"""Fit the weights of `storage/passages/score.py` and print them.

    python -m benchmarks.passages_fit

Uses only the questions of `questions/history_seen.json`, in the logs of `benchmarks/passages.py`.
Each candidate line of the search is a sample of a logistic regression, so the weighted sum is the
log-odds that a line is the answer, except that lines of unanswerable questions count more, as a
wrong answer is worse than none. The signs of some weights are constrained. Cross-validation by fact
estimates how well the weights generalise. Needs numpy and scipy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.passages import (
    CHATTER,
    GENERAL,
    QuestionFile,
    chatter,
    history,
    place_of,
    question_files,
)
from storage.chat_log.event import PUBLIC, Scope
from storage.chat_log.query import Query
from storage.db.database import Database
from storage.passages.passages import training_samples
from storage.passages.score import FEATURES

_PENALTY = 0.3  # L2 regularisation
_FOLDS = 5
_WRONG = 3  # weight of a line if no line answers the question
_LIMIT = 10
_POSITIVE = frozenset(
    {"exact", "related", "evidence", "shows", "density", "recent related", "states",
     "states all"}
)  # fmt: skip
_NEGATIVE = frozenset(
    {"heaviest missing", "asks", "lacks", "length", "nothing new", "name missing", "log size",
     "commonplace",
     "link"}
)  # fmt: skip

_MORE_GENERAL = (
    "What is the capital of Japan?",
    "What is the capital of Germany?",
    "How many minutes are in an hour?",
    "Which planet is known as the red planet?",
    "Who invented the telephone?",
    "What is the largest ocean on Earth?",
    "What gas do plants breathe in?",
    "How many sides does a triangle have?",
    "What is the color of grass?",
    "What is the opposite of up?",
    "What is the plural of mouse?",
    "What is 10 times 10?",
    "What is the first month of the year?",
    "Which season comes after winter?",
    "What do cows drink?",
    "What is the name of the fairy tale with seven dwarfs?",
    "What is the longest river in the world?",
    "What does CPU stand for?",
    "What is Linux?",
    "Who created Linux?",
    "Who is the creator of Python?",
    "What is an operating system?",
    "What language is spoken in Spain?",
    "How many players are on a football team?",
    "What instrument has 88 keys?",
    "What is the fastest land animal?",
    "What is frozen water called?",
    "How many letters are in the English alphabet?",
    "What do you call a baby dog?",
    "In which country is the Eiffel Tower?",
    "what is a kernel?",
    "what does ls do?",
    "how do I list files in a directory?",
    "what is ssh?",
    "translate hello to French",
    "write a poem about the sea",
    "which metal is liquid at room temperature?",
    "what year did World War II end?",
    "what is the speed of light?",
    "who was Albert Einstein?",
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
    def counts(self) -> int:
        """The weight of each line: higher without a right one, as a wrong answer is the worst."""
        return 1 if self.right.any() else _WRONG


async def samples(file: QuestionFile) -> list[Samples]:
    """Return the samples of all questions with candidates, in the large log and in channels."""
    found = []
    files = question_files()
    async with Database.open(await history(files)) as database:
        for fold, text, right, kind in _questions(file):
            found.append(await _sample(database, text, right, PUBLIC, fold, f"million {kind}"))
    async with Database.open(await chatter(files)) as database:
        for size in CHATTER:
            for number, (fold, text, right, kind) in enumerate(_questions(file)):
                fact = file.facts[number % len(file.facts)]
                scope = Scope.from_places(place_of(fact, size))
                found.append(await _sample(database, text, right, scope, fold, f"{size} {kind}"))
    return [each for each in found if len(each.rows)]


def _questions(file: QuestionFile) -> Iterator[tuple[int, str, str | None, str]]:
    """Yield fold, question, right line (None: none) and kind; each kind in the order of facts."""
    for number, fact in enumerate(file.facts):
        yield number % _FOLDS, fact.question, fact.text, "literal"
    for number, fact in enumerate(file.facts):
        yield number % _FOLDS, fact.paraphrase, fact.text, "paraphrased"
    for number, text in enumerate([*file.never, *GENERAL, *_MORE_GENERAL]):
        yield number % _FOLDS, text, None, "never" if number < len(file.never) else "general"


async def _sample(
    database: Database, text: str, right: str | None, scope: Scope, fold: int, kind: str
) -> Samples:
    query = Query(scope=scope, limit=_LIMIT)
    lines = await database.read(lambda db: training_samples(db, text, query))
    rows = np.array([values for _, values in lines]).reshape(-1, len(FEATURES))
    marks = np.array([float(event.text == right) for event, _ in lines])
    return Samples(rows, marks, fold, kind)


def fit(found: Sequence[Samples]) -> Floats:
    """Return the weights that minimise weighted log loss plus L2 penalty, within their signs."""
    rows = np.concatenate([each.rows for each in found])
    right = np.concatenate([each.right for each in found])
    counts = np.concatenate([np.full(len(each.rows), each.counts) for each in found])

    def objective(weights: Floats) -> tuple[float, Floats]:
        scores = rows @ weights
        loss = float((counts * (np.logaddexp(0, scores) - right * scores)).sum())
        gradient: Floats = rows.T @ (counts * (1 / (1 + np.exp(-scores)) - right))
        return loss + _PENALTY / 2 * float(weights @ weights), gradient + _PENALTY * weights

    bounds = [
        (0 if name in _POSITIVE else None, 0 if name in _NEGATIVE else None) for name in FEATURES
    ]
    start = np.zeros(len(FEATURES))
    found_weights: Floats = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return found_weights


def report(found: Sequence[Samples], weights: Mapping[int, Floats]) -> None:
    """Print by kind how often the right line ranks first, and how often the best line reaches each
    probability threshold (for paraphrased questions, only if it is the right one).

    `weights` has for each fold those fitted without it.
    """
    kinds = sorted({each.kind for each in found})
    for kind in kinds:
        first, given = [], dict.fromkeys((0.2, 0.3, 0.4, 0.5, 0.6), 0)
        group = [each for each in found if each.kind == kind]
        for each in group:
            scores = each.rows @ weights[each.fold]
            best = int(np.argmax(scores))
            is_right = bool(each.right[best])
            first.append(is_right)
            chance = 1 / (1 + np.exp(-scores[best]))
            for limit in given:
                given[limit] += chance >= limit and (is_right or not kind.endswith("sed"))
        shown = " ".join(f"{limit}: {count}" for limit, count in given.items())
        print(f"  {kind:24} first {sum(first):3} of {len(group):3}; given at {shown}", flush=True)


def main() -> None:
    """Print cross-validated results, then the weights fitted to all seen questions."""
    found = asyncio.run(samples(question_files()[0]))
    parts = {fold: fit([each for each in found if each.fold != fold]) for fold in range(_FOLDS)}
    report(found, parts)
    weights = fit(found)
    for name, weight in zip(FEATURES, weights, strict=True):
        print(f'    "{name}": {weight:.2f},')


if __name__ == "__main__":
    main()
