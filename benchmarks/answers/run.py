"""Questions of all sets over IRC, one after another, then ten at once; the bare model for each.

Environment variables restrict the run: `SETS=general,skills` selects sets, `LIMIT=60` asks at most
so many questions, `TOTAL=200` exactly so many (repeating general knowledge if there are too few),
and `MINUTES=20` asks no new ones after that time. The set `history` needs a log of a million lines;
it is asked only if nothing is restricted or SETS names it. `MODEL_PATH`, `MODEL_UPSTREAM` and any
other `MODEL_...` or `AGENT_...` configure the Terrarium under test.
"""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import httpx2

from benchmarks.answers import history
from benchmarks.answers.bare import BareAnswer, bare_answers
from benchmarks.answers.questions import NICKS, SETS, ScheduledQuestion, questions, schedule
from benchmarks.answers.report import AskedQuestion, figures_of, written
from benchmarks.answers.room import PeopleInRoom
from benchmarks.answers.scoring import is_expected, is_repeated, is_right, leaks
from benchmarks.figure import Figure

HISTORY = "history"
_WARM_UP = 40  # lines before the first question
_AT_ONCE = 10
_STRETCH = 10  # questions until the bare model is asked the same ones, under similar machine load


async def figures() -> AsyncIterator[Figure]:
    """Yield right answers, tokens, seconds and leaks; print the paths of files with the answers."""
    sets, number = _wanted()
    if named := [name for name in sets if name != HISTORY]:
        with tempfile.TemporaryDirectory() as name:
            async with PeopleInRoom.opened(Path(name)) as room:
                asked = await _asked(room, schedule(named, number))
                at_once = await _at_once(room)
        for figure in figures_of(asked, at_once):
            yield figure
        for path in written([*asked, *at_once]):
            print(f"  answers to read: {path}")
    if HISTORY in sets:
        async for figure in history.figures(number):
            yield figure


def _wanted() -> tuple[Sequence[str], int | None]:
    """Return the selected sets and the number of questions (None: all).

    Raises SystemExit for invalid environment variables.
    """
    known = (*SETS, HISTORY)
    named = [name for name in os.environ.get("SETS", "").replace(",", " ").split() if name]
    if unknown := set(named) - set(known):
        raise SystemExit(f"SETS: no such set: {', '.join(unknown)}; there are: {', '.join(known)}")
    try:
        limit, total = (int(os.environ.get(name, "0")) for name in ("LIMIT", "TOTAL"))
    except ValueError as error:
        raise SystemExit(f"LIMIT and TOTAL are numbers of questions: {error}") from error
    sets = named or (SETS if limit or total else known)
    if limit and not total:
        limit = min(limit, len(schedule([name for name in sets if name != HISTORY])) or limit)
    return sets, total or limit or None


async def _asked(room: PeopleInRoom, scheduled: Sequence[ScheduledQuestion]) -> list[AskedQuestion]:
    """Ask the questions in order and return them with the bot's and the bare model's answers."""
    await room.talk(_WARM_UP)
    asked: list[AskedQuestion] = []
    end = time.monotonic() + 60 * (float(os.environ.get("MINUTES", "0")) or math.inf)
    async with httpx2.AsyncClient(base_url=room.up.server, trust_env=False) as http:
        for start in range(0, len(scheduled), _STRETCH):
            stretch = scheduled[start : start + _STRETCH]
            for question in stretch:
                if time.monotonic() > end:
                    break
                asked.append(await _one(room, question, asked))
                _show(asked[-1])
            for each in asked[start:]:
                _compare(each, await bare_answers(http, each.question.text))
    return asked


async def _one(
    room: PeopleInRoom, question: ScheduledQuestion, earlier: Sequence[AskedQuestion]
) -> AskedQuestion:
    item, asker = question.item, question.asker
    said = await room.pause_before(question)
    answer = await room.ask(asker, question.text)
    text, second = answer.text, None
    if item.then:
        await room.type(item.then.question)
        second = await room.ask(asker, item.then.question)
        right = is_expected(second.text, item.then.expect)
        text = f"{text} // {item.then.question} // {second.text}"
    else:
        right = is_right(item, text, answer.asked, said, await room.reminders(asker))
    others = [each.answer.text for each in earlier if each.question.item.id != item.id]
    return AskedQuestion(
        question=question,
        answer=answer,
        text=text,
        is_right=right,
        leaks=leaks(text, room.every_line, item.about_bot),
        is_repeated=not right and is_repeated(answer.text, others),
    )


def _compare(asked: AskedQuestion, bare: Mapping[str, BareAnswer]) -> None:
    item, time = asked.question.item, asked.answer.asked
    asked.bare = bare
    may_be_right = not item.then and item.check.partition(":")[0] != "no_reminder"
    asked.bare_right = {
        name: may_be_right and is_right(item, answer.text, time) for name, answer in bare.items()
    }


async def _at_once(room: PeopleInRoom) -> list[AskedQuestion]:
    """Have _AT_ONCE people ask at the same time."""
    items = [item for item in questions("general") if item.half == "seen"][:_AT_ONCE]
    group = f"{_AT_ONCE} at once"
    asked = [
        ScheduledQuestion(number, group, item, item.question, nick, 0)
        for number, (item, nick) in enumerate(zip(items, reversed(NICKS), strict=False), 1)
    ]
    answers = await asyncio.gather(
        *(room.ask(each.asker, each.text, among_others=True) for each in asked)
    )
    return [
        AskedQuestion(
            question=question,
            answer=answer,
            text=answer.text,
            is_right=is_right(question.item, answer.text, answer.asked),
            leaks=leaks(answer.text, room.every_line),
        )
        for question, answer in zip(asked, answers, strict=True)
    ]


def _show(asked: AskedQuestion) -> None:
    """Print a line of progress, without the text of an unseen question."""
    question, first = asked.question, asked.answer.first
    seconds = f"{first:6.2f} s" if first is not None else "  none  "
    verdict = "right" if asked.is_right else "wrong"
    text = question.text if question.item.half == "seen" else "..."
    print(f"  {question.number:>4} {question.group:<10} {seconds} {verdict} {text}", flush=True)
