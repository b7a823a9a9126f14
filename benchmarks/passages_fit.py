"""Fit the weights of `storage/passages/score.py` and print them.

    python -m benchmarks.passages_fit

Reads the questions of `questions/history_seen.json` alone, in the logs that
`benchmarks/passages.py` makes of real lines: each line that the search looks at is a sample, right
or wrong. So the sum of weights is the log-odds that a line is the answer, but that a wrong answer
counts as worse than none. Weights keep the sign that makes sense. Facts are left out in turns
first, to tell how well the weights do on others. Needs numpy and scipy.
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
from storage.passages.passages import looked_at
from storage.passages.score import FEATURES

_PENALTY = 0.3  # of squared weights
_FOLDS = 5
_WRONG = 3  # times that a line counts where nobody has answered
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
    """The lines that were looked at for a question: features, and which is right. `fold` is the
    part that it is left out in, `kind` what sort of question it is."""

    rows: Floats
    right: Floats
    fold: int
    kind: str

    @property
    def counts(self) -> int:
        """How many samples each line counts as: a wrong answer is worse than none."""
        return 1 if self.right.any() else _WRONG


async def samples(file: QuestionFile) -> list[Samples]:
    """The samples of all questions, in the big log and in channels."""
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
    """Fold, question, the right line and the kind, in the order of the facts for each kind."""
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
    lines = await database.read(lambda db: looked_at(db, text, query))
    rows = np.array([values for _, values in lines]).reshape(-1, len(FEATURES))
    marks = np.array([float(event.text == right) for event, _ in lines])
    return Samples(rows, marks, fold, kind)


def fit(found: Sequence[Samples]) -> Floats:
    """The weights with the least log loss and penalty."""
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
    """By kind: how often the right line is the best, and for thresholds how often a line is
    given at all (with facts: the right one)."""
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
                given[limit] += chance >= limit and (
                    is_right or (not kind.endswith("sed") and True)
                )
        shown = " ".join(f"{limit}: {count}" for limit, count in given.items())
        print(f"  {kind:24} first {sum(first):3} of {len(group):3}; given at {shown}", flush=True)


def main() -> None:
    """Fit to the questions that are there to be looked at."""
    found = asyncio.run(samples(question_files()[0]))
    parts = {fold: fit([each for each in found if each.fold != fold]) for fold in range(_FOLDS)}
    report(found, parts)
    weights = fit(found)
    for name, weight in zip(FEATURES, weights, strict=True):
        print(f'    "{name}": {weight:.2f},')


if __name__ == "__main__":
    main()
