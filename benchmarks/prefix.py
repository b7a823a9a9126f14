"""How much of a channel's prompts comes from the engine's cache, and how soon the answer begins.

Channels go on as #ubuntu really did (`DATA` names the folder of its logs), and after some lines
somebody asks the bot the next one. The answers are the real model's. Each case is played twice, to
engines of their own: with our prompts, and with those of a bot that shows the last lines as they
are at each question. What came from the cache is the engine's own number. `CASE` names one of the
cases, or some letters of it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.figure import Figure
from benchmarks.layouts import Layout, Ours, SlidingWindow, Timed, digest, ours
from benchmarks.replay import Channel
from benchmarks.small_server import small_server
from benchmarks.ubuntu import NoCorpus, lines
from llm.message import Usage
from storage.chat_log import ChatLog
from storage.database import Database

QUESTIONS = 30
OF_THE_WINDOW = 10  # questions: its prompts are read anew each time, so more take only longer
BETWEEN = 10  # lines
BEFORE = 60  # lines, before the first question
CACHED, SOONER = 85.0, 0.4


@dataclass(frozen=True, slots=True)
class Case:
    """Who asks where: `channels` of them, all questions by one `asker` or each by whoever said it
    really, with `cron` between them, or on all channels `at_once`."""

    name: str
    channels: int = 1
    asker: str = ""
    cron: bool = False
    at_once: bool = False


CASES = (
    Case("one asker", asker="ada"),
    Case("many askers"),
    Case("4 channels and cron in turn", channels=4, cron=True),
    Case("4 channels at once", channels=4, at_once=True),
)


async def figures() -> AsyncIterator[Figure]:
    """For each case the share of cached tokens and the time to the first word, and the ratio."""
    try:
        lines()
    except NoCorpus as error:
        print(f"  skipped: {error}")
        return
    wanted = os.environ.get("CASE", "")
    for case in CASES:
        if wanted not in case.name:
            continue
        window = await _played(case, OF_THE_WINDOW, lambda bot: SlidingWindow(bot.client))
        grown = await _played(case, QUESTIONS, lambda bot: bot)
        for name, turns in (("window", window), ("ours", grown)):
            yield Figure(f"{case.name}, {name}: prompt tokens", _tokens(turns), "")
        yield Figure(f"{case.name}, window: from the cache", _cached(window), "%")
        yield Figure(f"{case.name}, ours: from the cache", _cached(grown), "%", least=CACHED)
        yield Figure(f"{case.name}, window: first word", _first(window), "s")
        yield Figure(f"{case.name}, ours: first word", _first(grown), "s")
        yield Figure(f"{case.name}: ratio", _first(grown) / _first(window), "", goal=SOONER)


async def _played(case: Case, questions: int, layout: Callable[[Ours], Layout]) -> list[Timed]:
    """All answers to people of a case, so many on each channel."""
    async with _stage() as (bot, log):
        way = layout(bot)
        channels = [Channel(log, number, case.asker) for number in range(case.channels)]
        for channel in channels:
            await channel.goes_on(BEFORE)
        return [each for _ in range(questions) for each in await _round(case, bot, way, channels)]


async def _round(case: Case, bot: Ours, way: Layout, channels: list[Channel]) -> list[Timed]:
    """One question on each channel, and what cron asks."""
    asked = []
    for channel in channels:
        await channel.goes_on(BETWEEN)
        asked.append((channel, await channel.question()))
    work = [way.ask(channel, question) for channel, question in asked]
    timed = list(await asyncio.gather(*work)) if case.at_once else [await each for each in work]
    for (channel, question), each in zip(asked, timed, strict=True):
        await channel.answered(question, each.text)
    if case.cron:
        await digest(bot.client, *asked[0])
    return timed


@asynccontextmanager
async def _stage() -> AsyncIterator[tuple[Ours, ChatLog]]:
    """A fresh engine behind a server, a tendril of it and a log."""
    with tempfile.TemporaryDirectory() as name:
        async with (
            small_server(threads=os.cpu_count() or 1) as (http, _),
            Database.opened(Path(name) / "log.db") as database,
            ours(Path(name), str(http.base_url)) as bot,
        ):
            yield bot, ChatLog(database)


def _tokens(turns: list[Timed]) -> float:
    return fmean(turn.usage.prompt for turn in turns)


def _cached(turns: list[Timed]) -> float:
    used = sum((turn.usage for turn in turns), Usage())
    return used.cached / used.prompt * 100


def _first(turns: list[Timed]) -> float:
    return fmean(turn.first for turn in turns if turn.first is not None)
