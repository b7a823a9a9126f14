"""How much of a channel's prompts comes from the engine's cache, and how soon the answer begins.

Channels go on as #ubuntu really did (`DATA` names the folder of its logs), and after some lines
somebody asks the bot the next one. The answers are the real model's. Each case is played three
times: as a bot does that shows the last lines as they are at each question, on llama.cpp as other
servers run it, which keeps the beginning of a prompt; the same on our engine, which also shifts
what remains when lines leave a prompt that is still in its slot; and as Terrarium does. What came
from the cache is the engine's own number. `CASE` names one of the cases, or a part of its name.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import httpx2

from benchmarks.figure import Figure
from benchmarks.layouts import Layout, Ours, SlidingWindow, Timed, digest, ours
from benchmarks.plain_engine import plain_engine
from benchmarks.replay import Asked, Channel
from benchmarks.small_server import small_server
from benchmarks.ubuntu import NoCorpus, lines
from storage.db.database import Database
from storage.log import ChatLog
from terrarium.usage import TokenUsage

QUESTIONS = 30
OF_THE_WINDOW = 8  # questions in all: its prompts are read anew each time, so more take only longer
BETWEEN = 10  # lines
BEFORE = 60  # lines, before the first question
SOONER = 0.4


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


@dataclass(frozen=True, slots=True)
class Played:
    """The mean tokens of a prompt, how much of all prompts came from the cache (percent), and the
    mean time to the first word (seconds). What cron asks counts for neither."""

    tokens: float
    cached: float
    first: float


async def figures() -> AsyncIterator[Figure]:
    """For each case what comes from the cache, and how soon the answer begins."""
    try:
        lines()
    except NoCorpus as error:
        print(f"  skipped: {error}")
        return
    wanted = os.environ.get("CASE", "")
    for case in (case for case in CASES if wanted in case.name):
        ours = await _played(case, QUESTIONS, lambda bot: bot, {})
        for figure in _figures(f"{case.name}, ours", ours):
            yield figure
        async with plain_engine() as settings:
            window = await _played(case, OF_THE_WINDOW // case.channels, _window, settings)
        for figure in _figures(f"{case.name}, window", window):
            yield figure
        shifted = await _played(case, OF_THE_WINDOW // case.channels, _window, {})
        for figure in _figures(f"{case.name}, window, our engine", shifted):
            yield figure
        yield Figure(f"{case.name}: ours to window", ours.first / window.first, "", goal=SOONER)


def _figures(name: str, played: Played) -> Iterator[Figure]:
    yield Figure(f"{name}: prompt", played.tokens, "tokens")
    yield Figure(f"{name}: cached", played.cached, "%")
    yield Figure(f"{name}: first word", played.first, "s")


def _window(bot: Ours) -> Layout:
    return SlidingWindow(bot.client)


async def _played(
    case: Case,
    questions: int,
    layout: Callable[[Ours], Layout],
    settings: Mapping[str, str],
) -> Played:
    """A case with so many questions on each channel, on a server with these settings."""
    async with _stage(settings) as (http, bot, log):
        way, cron = layout(bot), TokenUsage()
        channels = [Channel(log, number, case.asker) for number in range(case.channels)]
        for channel in channels:
            await channel.goes_on(BEFORE)
        turns: list[Timed] = []
        for _ in range(questions):
            asked = [await _asked(channel) for channel in channels]
            turns += await _answered(case, way, asked)
            if case.cron:
                cron += (await digest(bot.client, *asked[0])).usage
        used = (await http.get("/usage")).json()["total"]
    prompt = used["prompt_tokens"] - cron.prompt
    return Played(
        fmean(turn.usage.prompt for turn in turns),
        (used["cached_tokens"] - cron.cached) / prompt * 100,
        fmean(turn.first for turn in turns if turn.first is not None),
    )


async def _asked(channel: Channel) -> tuple[Channel, Asked]:
    await channel.goes_on(BETWEEN)
    return channel, await channel.question()


async def _answered(case: Case, way: Layout, asked: list[tuple[Channel, Asked]]) -> list[Timed]:
    """One question on each channel is answered, in turn or at once."""

    async def answered(channel: Channel, question: Asked) -> Timed:
        timed = await way.ask(channel, question)
        await channel.answered(question, timed.text)
        return timed

    if case.at_once:
        return list(await asyncio.gather(*(answered(*each) for each in asked)))
    return [await answered(*each) for each in asked]


@asynccontextmanager
async def _stage(
    settings: Mapping[str, str],
) -> AsyncIterator[tuple[httpx2.AsyncClient, Ours, ChatLog]]:
    """A fresh engine behind a server, a tendril of it and a log."""
    with tempfile.TemporaryDirectory() as name:
        async with (
            small_server(**settings) as (http, _),
            Database.open(Path(name) / "log.db") as database,
            ours(Path(name), str(http.base_url)) as bot,
        ):
            yield http, bot, ChatLog(database)
