"""A scripted day with a strong model behind a complete Terrarium, and the table of its turns.

`make bench-strong` plays the turns of `turns.py` on a real IRC server, in private, in the web chat,
in the terminal and as a job. Then twenty people ask two hundred questions on one channel, a channel
of 400 lines is asked eleven times with a model that is slow to begin, and prompts of a thousand
lines are built. `TURNS=4,5,35` plays these turns only, and nothing else.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.figure import Figure
from benchmarks.strong.building import building
from benchmarks.strong.stage import DAY, LATE, Stage
from benchmarks.strong.story import PEOPLE
from benchmarks.strong.turn import Turn, search
from benchmarks.strong.turns import TURNS
from benchmarks.strong.upstream import Asked
from benchmarks.strong.verdict import HEADING, Verdict, verdict

MANY = tuple(f"nick{number:02}" for number in range(20))
QUESTIONS, SLOW_QUESTIONS = 200, 10
_MOST_SHARED, _MOST_LINES, _MOST_GROWTH = 85, 300, 20


async def figures() -> AsyncIterator[Figure]:
    """Print the table of the turns; yield how many are worse than plain, and the other totals."""
    wanted = {int(each) for each in os.environ.get("TURNS", "").replace(",", " ").split()}
    turns = [turn for turn in TURNS if not wanted or turn.number in wanted]
    with tempfile.TemporaryDirectory() as name:
        async with Stage.opened(Path(name), MANY) as stage:
            irc = stage.up.child("run irc")
            before = _megabytes(irc)
            await stage.morning()
            print(HEADING)
            for figure in _totals(await _day(stage, turns)):
                yield figure
            if wanted:
                return
            shared, growth = await _many(stage, irc)
            yield Figure(
                "prompt that began the one before, of 200", shared, "%", least=_MOST_SHARED
            )
            yield Figure("lines after 10 slow answers", await _slow(stage), "", least=_MOST_LINES)
            yield Figure("memory of the IRC tendril, a day", _megabytes(irc) - before, "MB")
            yield Figure(
                "memory of the IRC tendril, 200 questions", growth, "MB", goal=_MOST_GROWTH
            )
    async for figure in building():
        yield figure


async def _day(stage: Stage, turns: Sequence[Turn]) -> list[Verdict]:
    """Take the turns in order; print a line for each."""
    verdicts: list[Verdict] = []
    previous: dict[str, Asked] = {}
    for turn in turns:
        played, got = await stage.take(turn)
        # In private, and where nobody else asks, there is nothing to share.
        on_channel = turn.door == "channel"
        found = verdict(played, got, previous.get(turn.door) if on_channel else None)
        if played.requests:
            previous[turn.door] = played.requests[0]
        verdicts.append(found)
        print(found.row, flush=True)
    return verdicts


def _totals(verdicts: Sequence[Verdict]) -> list[Figure]:
    asked = [each for each in verdicts if each.tokens]
    worse = [each for each in verdicts if each.reasons]
    unclocked = [each for each in asked if not each.has_clock]
    changed = [each for each in verdicts if each.tokens and each.reached < each.written]
    for number, (tools, turns) in enumerate(_tool_lists(asked)):
        head = "tools" if not number else "other tools"
        print(f"  {head} of turns {', '.join(map(str, turns))}: {', '.join(tools)}")
    return [
        Figure("turns", len(verdicts), ""),
        Figure("worse than plain", len(worse), "", goal=0),
        Figure("answers not read as written", len(changed), "", goal=0),
        Figure("prompts without date and zone", len(unclocked), "", goal=0),
        Figure("different lists of tools on channels", _lists_on_channels(asked), "", goal=1),
    ]


def _tool_lists(verdicts: Sequence[Verdict]) -> list[tuple[tuple[str, ...], list[int]]]:
    """Return the different lists of tools, each with the turns that had it."""
    found: dict[tuple[str, ...], list[int]] = {}
    for each in verdicts:
        found.setdefault(each.tools, []).append(each.number)
    return list(found.items())


def _lists_on_channels(verdicts: Sequence[Verdict]) -> int:
    doors = {turn.number: turn.door for turn in TURNS}
    return len({each.tools for each in verdicts if doors[each.number] == "channel"})


async def _many(stage: Stage, irc: psutil.Process) -> tuple[float, float]:
    """Let twenty people ask two hundred questions on one channel; return the percentage of prompt
    tokens that are a prefix of the previous prompt, and the megabytes by which the tendril grew."""
    asked: list[Asked] = []
    before = 0.0
    for number in range(QUESTIONS):
        if number == len(MANY):  # everything is loaded, and everybody known
            before = _megabytes(irc)
        for speaker in (MANY[number * 7 % 20], MANY[number * 11 % 20]):
            await stage.say(speaker, f"about matter {number} there is a thing to say", DAY)
        who = MANY[number % 20]
        turn = Turn(
            1_000 + number,
            "",
            who,
            f"and what of matter {number}?",
            f"Of matter {number} this: " + "it is so, and it stays so. " * 5,
            moves=((search(f"matter {number}"),),) if number % 4 == 0 else (),
        )
        played, _ = await stage.ask(turn, DAY)
        asked += played.requests[:1]
    shared = sum(second.shared_with(first) for first, second in pairwise(asked))
    return 100 * shared / sum(each.tokens for each in asked[1:]), _megabytes(irc) - before


async def _slow(stage: Stage) -> int:
    """Ask with a model that is slow to begin; return the lines in the prompt after ten answers."""
    played = None
    for number in range(SLOW_QUESTIONS + 1):
        turn = Turn(
            2_000 + number,
            "",
            PEOPLE[number % len(PEOPLE)],
            f"what was line {number} about?",
            "About nothing of weight.",
            slow=number < SLOW_QUESTIONS,
        )
        played, _ = await stage.ask(turn, LATE)
    return played.requests[0].lines if played and played.requests else 0


def _megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 1024**2
