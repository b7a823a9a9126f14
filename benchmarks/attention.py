"""Processor time of attention, and its rate of triggers ("wakes") on real channels.

Processor time is measured per tick with ten busy channels, per line, and for a tendril with
`proactive` off on all channels. Wakes are counted by replaying logs of #ubuntu with hand-annotated
reply links (`DATA` and `SPLIT` as in `context`) at one tick a second, each run finishing at once:
the wakes per hour, and the share of triggering questions that, according to the annotations, a
person had already answered.
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
from llm.attention.attention import Attention, Trigger
from llm.attention.message_features import MessageFeatures
from llm.attention.proactive_scheduler import ProactiveScheduler
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.attention_state import AttentionStore
from terrarium.clock import SystemClock

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_CHANNELS, _TICKS = 10, 3_600
_REST = 5.0  # seconds
_SHARE = 0.1  # percent of one processor, the goal
_WAKES = 2.0  # goal: wakes per hour and channel, the most that the pause between them allows


@dataclass(slots=True)
class Day:
    """The result of replaying one log file."""

    hours: float = 0.0
    wakes: list[Trigger] = field(default_factory=list)
    answered: list[bool] = field(default_factory=list)  # per annotated question woken for


async def figures() -> AsyncIterator[Figure]:
    """Yield the processor time of ticks and lines, then the wakes on real logs."""
    with folder() as path:
        files = list(annotated(path))
    if not files:
        print("  skipped: DATA and SPLIT name no folder with *.raw.txt and *.annotation.txt")
        return
    lines = [line for line in files[0].lines if isinstance(line, Said)]
    tick, line = _costs(lines)
    # There is one tick a second, so microseconds per tick / 10,000 is percent of a processor.
    yield Figure(f"ticks of {_CHANNELS} busy channels, of a processor", tick / 1e4, "%", _SHARE)
    yield Figure("a line is heard", line, "us")
    yield Figure("all channels off, of a processor", await _resting(), "%", _SHARE)
    days = [_day(file) for file in files]
    hours = sum(day.hours for day in days)
    yield Figure("hours of #ubuntu", hours, "h")
    rates = [len(day.wakes) / day.hours for day in days]
    yield Figure("wakes an hour", sum(len(day.wakes) for day in days) / hours, "", goal=_WAKES)
    yield Figure("wakes an hour, the busiest file", max(rates), "")
    answered = [each for day in days for each in day.answered]
    if answered:
        yield Figure("questions woken for that are annotated", len(answered), "")
        share = 100 * sum(answered) / len(answered)
        yield Figure("of them answered by somebody by then", share, "%")


def _costs(lines: list[Said]) -> tuple[float, float]:
    """Return the mean microseconds per tick with all channels busy, and per line."""
    attention = Attention()
    places = [Place("irc", f"#channel{number}") for number in range(_CHANNELS)]
    heard = ticked = 0.0
    count = 0
    for second in range(_TICKS):
        now = _BEGIN + timedelta(seconds=second)
        began = time.process_time()
        for place in places if second % 5 == 0 else ():
            said = lines[count % len(lines)]
            count += 1
            line = MessageFeatures.extract(said.text, said.nick, now)
            attention.channel(place).on_message(line, "terra")
        between = time.process_time()
        for trigger in attention.tick(now):
            attention.finish(trigger)
        heard, ticked = heard + between - began, ticked + time.process_time() - between
    return 1e6 * ticked / _TICKS, 1e6 * heard / count


async def _resting() -> float:
    """Return the percentage of a processor used by a scheduler that receives no lines."""

    async def think(trigger: Trigger) -> None:
        return None

    with tempfile.TemporaryDirectory() as path:
        async with Database.open(Path(path) / "irc.db") as database:
            store = AttentionStore(database)
            scheduler = await ProactiveScheduler.restore(store, SystemClock(), int, think)
            beating = asyncio.create_task(scheduler.run())
            began = time.process_time()
            await asyncio.sleep(_REST)
            spent = time.process_time() - began
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
    return 100 * spent / _REST


def _day(file: Annotated) -> Day:
    """Replay a whole file to a fresh `Attention`, second by second."""
    attention, place, day = Attention(), Place("irc", "#ubuntu"), Day()
    asked: dict[str, int] = {}  # by person: the first line with a question in the last 30 minutes
    timed = list(_timed(file))
    # Reversed, so that the first reply to a line overwrites later ones.
    answers = {a: b for a, b in reversed(file.links) if a != b and _another(file, a, b)}
    first = min(b for _, b in file.links)
    end, seconds = timed[-1][0], dict[int, list[int]]()
    for second, index in timed:
        seconds.setdefault(second, []).append(index)
    when = {index: second for second, index in timed}
    for second in range(timed[0][0], end + 1):
        now = _BEGIN + timedelta(seconds=second)
        for index in seconds.get(second, ()):
            said = file.lines[index]
            assert isinstance(said, Said)
            line = MessageFeatures.extract(said.text, said.nick, now)
            attention.channel(place).on_message(line, "terra")
            if line.asks:
                asked.setdefault(line.person, index)
        for trigger in attention.tick(now):
            attention.finish(trigger)
            day.wakes.append(trigger)
            # Only questions from the first annotated line on can be judged.
            question = asked.get(trigger.person, 0)
            if question >= first:
                answer = answers.get(question)
                day.answered.append(answer is not None and when[answer] <= second)
        asked = {who: index for who, index in asked.items() if when[index] > second - 1800}
    day.hours = (end - timed[0][0]) / 3600
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
