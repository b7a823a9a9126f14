"""Questions that nobody answers, in real lines: which ones attention finds, and what they cost.

Logs of #ubuntu whose replies are annotated by hand are replayed, `LINES` lines of them (20,000), a
channel for each file, in virtual time with a beat a second. No model takes part: what is measured
is the decision to ask one. `found` counts each question that was open for five minutes, whether or
not the pause of half an hour let it wake the model; it is judged by the annotations. True are those
that begin a conversation in which no other person says anything within five minutes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.reply_links import Annotated, Said, annotated, folder
from harnesses.core.attention import ANSWER_DELAY, Attention, Wake
from harnesses.core.services.shared_log import LoggedLine
from harnesses.core.tendril.turn import TurnResult
from storage.chat_log.event import Identity, PendingEvent, Place
from storage.db.database import Database
from storage.queues.unasked import Signal
from tests.kit.clock import ManualClock

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_CALLS = 5.0  # goal: of the model, in 1,000 lines
_BEAT = timedelta(seconds=1)
_DELAY = int(ANSWER_DELAY.total_seconds())


@dataclass(slots=True)
class Replay:
    """The result of replaying log files; `spent` and `beat` are seconds of a processor for lines
    and beats. `true` are the questions that nobody answered, by the annotations."""

    lines: int = 0
    beats: int = 0
    calls: int = 0
    spent: float = 0.0
    beat: float = 0.0
    true: int = 0
    found: int = 0  # of these
    called: int = 0  # of these
    judged: dict[str, list[bool]] = field(default_factory=lambda: {"found": [], "called": []})


async def figures() -> AsyncIterator[Figure]:
    """Yield what the beat costs, how often the model is called, and precision and recall."""
    wanted, replay = int(os.environ.get("LINES", "20000")), Replay()
    with tempfile.TemporaryDirectory() as path:
        async with Database.open(Path(path) / "irc.db") as database:
            for file in _files():
                if replay.lines < wanted:
                    await _replay(database, file, wanted - replay.lines, replay)
    if not replay.lines:
        print("  skipped: DATA names no folder with ubuntu-irc.tar.xz")
        return
    yield Figure("lines of #ubuntu", replay.lines, "")
    yield Figure("a line is heard", 1e6 * replay.spent / replay.lines, "us")
    yield Figure("a beat", 1e6 * replay.beat / replay.beats, "us")
    calls = 1000 * replay.calls / replay.lines
    yield Figure("model calls in 1,000 lines", calls, "", goal=_MOST_CALLS)
    yield Figure("questions that nobody answered", replay.true, "")
    for name, hits in (("found", replay.found), ("called", replay.called)):
        judged = replay.judged[name]
        yield Figure(f"{name}: judged", len(judged), "")
        yield Figure(f"{name}: precision", 100 * sum(judged) / max(1, len(judged)), "%")
        yield Figure(f"{name}: recall", 100 * hits / max(1, replay.true), "%")


def _files() -> Iterator[Annotated]:
    """Yield the annotated logs of all splits, those that the rule was not fitted to first."""
    for split in ("test", "dev", "train"):
        with folder(split) as path:
            yield from annotated(path)


async def _replay(database: Database, file: Annotated, most: int, replay: Replay) -> None:
    """Replay the last lines of a file, which are the annotated ones, `most` of them."""
    timed = list(_timed(file))[-most:]
    when = {index: second for second, index in timed}
    first = min(b for _, b in file.links)
    unanswered = _unanswered(file, when)
    # Of later lines it is unknown whether somebody has answered in time.
    known = {each for each in when if first <= each and when[each] <= timed[-1][0] - _DELAY}
    begun = {b for a, b in file.links if a == b}
    true = {index for index in begun & unanswered & known if "?" in _said(file, index).text}
    replay.true += len(true)
    clock, heard = ManualClock(_BEGIN + timedelta(seconds=timed[0][0])), dict[object, int]()
    place = Place("irc", f"#{file.name}")

    async def wake(_: Wake) -> TurnResult:
        return TurnResult("")

    attention = Attention(database, clock, int, lambda: {"question": 2.0}, wake)
    for second, index in [*timed, (timed[-1][0] + _DELAY, -1)]:
        began = time.process_time()
        while clock.now() < _BEGIN + timedelta(seconds=second):
            await clock.advance(_BEAT)
            replay.calls += len(attention.beat())
            replay.beats += 1
        now = time.process_time()
        replay.beat += now - began
        if index >= 0:
            said, pending = _said(file, index), PendingEvent(None)
            heard[pending] = index
            attention.on_line(LoggedLine(place, Identity(said.nick, "", ""), said.text, pending))
            replay.spent += time.process_time() - now
    replay.lines += len(timed)
    while not attention.changed.empty():
        signal: Signal = attention.changed.get_nowait()
        index = heard.get(signal.line, -1)
        if index not in known or not (signal.has_woken or signal.outcome == "in the pause"):
            continue
        for name in ("found", "called")[: 1 + signal.has_woken]:
            replay.judged[name].append(index in unanswered)
        replay.found += index in true
        replay.called += index in true and signal.has_woken


def _unanswered(file: Annotated, when: dict[int, int]) -> set[int]:
    """Return the lines after which no other person says anything in their conversation, which is
    all that links connect, for five minutes."""
    talk: dict[int, int] = {}

    def begin(index: int) -> int:
        while talk.setdefault(index, index) != index:
            index = talk[index]
        return index

    for a, b in file.links:
        talk[begin(b)] = begin(a)
    talks: dict[int, list[int]] = {}
    for index in sorted(talk.keys() & when.keys()):
        talks.setdefault(begin(index), []).append(index)
    return {
        index
        for lines in talks.values()
        for index in lines
        if not any(
            index < each
            and when[each] <= when[index] + _DELAY
            and _said(file, each).nick != _said(file, index).nick
            for each in lines
        )
    }


def _said(file: Annotated, index: int) -> Said:
    said = file.lines[index]
    assert said is not None
    return said


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
