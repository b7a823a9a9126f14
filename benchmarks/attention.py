"""Processor time per line, and how often the model would be asked unasked, on a real channel.

Logs of #ubuntu with hand-annotated reply links are replayed (`DATA` and `SPLIT` as in `context`):
how often an hour the model would be asked, and the share of its questions that, according to the
annotations, a person had already answered.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.reply_links import Annotated, Said, annotated, folder
from harnesses.core.attention import OpenQuestion, UnaskedSpeech
from harnesses.core.services.shared_log import LoggedLine
from storage.chat_log.event import Identity, PendingEvent, Place
from storage.db.database import Database
from storage.queues.unasked import Silences
from tests.kit.clock import ManualClock

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_PLACE = Place("irc", "#ubuntu")
_ASKED = 2.0  # goal: times an hour, the most that the pause between them allows


@dataclass(slots=True)
class Day:
    """The result of replaying one log file; `spent` are seconds of a processor for its lines."""

    lines: int
    hours: float
    asked: list[OpenQuestion] = field(default_factory=list)
    answered: list[bool] = field(default_factory=list)  # per annotated question of these
    spent: float = 0.0


async def figures() -> AsyncIterator[Figure]:
    """Yield the processor time of a line, then how often the model would be asked."""
    with folder() as path:
        days = [await _day(file) for file in annotated(path)]
    if not days:
        print("  skipped: DATA and SPLIT name no folder with *.raw.txt and *.annotation.txt")
        return
    spent, lines = sum(day.spent for day in days), sum(day.lines for day in days)
    yield Figure("a line is heard", 1e6 * spent / lines, "us")
    hours = sum(day.hours for day in days)
    yield Figure("hours of #ubuntu", hours, "h")
    asked = sum(len(day.asked) for day in days)
    yield Figure("asked an hour", asked / hours, "", goal=_ASKED)
    yield Figure("asked an hour, the busiest file", max(len(d.asked) / d.hours for d in days), "")
    answered = [each for day in days for each in day.answered]
    if answered:
        yield Figure("questions that are annotated", len(answered), "")
        share = 100 * sum(answered) / len(answered)
        yield Figure("of them answered by somebody by then", share, "%")


async def _day(file: Annotated) -> Day:
    """Replay a whole file, line by line."""
    timed = list(_timed(file))
    day = Day(len(timed), (timed[-1][0] - timed[0][0]) / 3600)
    when = {index: second for second, index in timed}
    # Reversed, so that the first reply to a line overwrites later ones.
    answers = {a: b for a, b in reversed(file.links) if a != b and _another(file, a, b)}
    first = min(b for _, b in file.links)
    clock = ManualClock(_BEGIN)
    heard: dict[PendingEvent, int] = {}

    async def ask(question: OpenQuestion) -> None:
        day.asked.append(question)
        # Only questions from the first annotated line on can be judged.
        if (index := heard[question.line]) >= first:
            answer, now = answers.get(index), (clock.now() - _BEGIN).total_seconds()
            day.answered.append(answer is not None and when[answer] <= now)

    with tempfile.TemporaryDirectory() as path:
        async with Database.open(Path(path) / "irc.db") as database:
            speech = UnaskedSpeech(Silences(database), clock, int, ask)
            running = asyncio.create_task(speech.run())
            for second, index in timed:
                await clock.set(_BEGIN + timedelta(seconds=second))
                await asyncio.sleep(0)
                said = file.lines[index]
                assert isinstance(said, Said)
                pending = PendingEvent(None)
                heard[pending] = index
                line = LoggedLine(_PLACE, Identity(said.nick, "", ""), said.text, pending)
                began = time.process_time()
                speech.on_line(line)
                day.spent += time.process_time() - began
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    return day


def _timed(file: Annotated) -> Iterator[tuple[int, int]]:
    """Yield the second and the index of each line.

    Logs have minutes only, so the lines of a minute are spread evenly over it. Where the time of a
    log jumps back, the rest is shifted to begin one minute after the line before.
    """
    minutes: dict[int, list[int]] = {}
    last = behind = 0
    for index, line in enumerate(file.lines):
        if isinstance(line, Said):
            if line.minute < last:
                behind += last - line.minute + 1
            last = line.minute
            minutes.setdefault(line.minute + behind, []).append(index)
    for minute, indexes in minutes.items():
        for number, index in enumerate(indexes):
            yield minute * 60 + number * 60 // len(indexes), index


def _another(file: Annotated, first: int, second: int) -> bool:
    """Return True if both lines are messages and have different nicks."""
    a, b = file.lines[first], file.lines[second]
    return isinstance(a, Said) and isinstance(b, Said) and a.nick != b.nick
