"""Prefix caching of a channel's prompts, and the time to the first word of an answer.

Channels are replayed from logs of #ubuntu (`DATA` names their folder), and every few lines the next
one is asked as a question to the bot. First, in a minute, "a day": twenty people ask two hundred
questions on one channel, a scripted model answers, and its prompts are compared.

In the other cases the real model answers. Each runs three times: with Terrarium's layout; with a
sliding window of the last lines on llama.cpp with its default cache, which reuses a common prefix
only; and with the sliding window on our engine, which also shifts the cached rest when lines drop
out of a prompt that is still in its slot. Cached tokens are counted by the engine. `CASE` selects
cases by a part of their name.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import httpx2

from benchmarks.figure import Figure
from benchmarks.layouts import Layout, Ours, SlidingWindow, Timed, digest, ours
from benchmarks.plain_engine import plain_engine
from benchmarks.replay import Asked, Channel
from benchmarks.small_server import small_server
from benchmarks.strong.turn import Turn
from benchmarks.strong.upstream import Asked as Prompt
from benchmarks.strong.upstream import StrongModel
from benchmarks.ubuntu import NoCorpus, lines
from storage.db.database import Database
from storage.log import ChatLog
from storage.usage.usage import TokenUsage

DAY, PEOPLE, ALL_DAY, SHOWN = "a day", 20, 200, 300
"""The first case, its people, questions, and the lines that a prompt shows at least."""

LEAST_SHARED = 85  # percent of prompt tokens; a goal
QUESTIONS = 30
OF_THE_WINDOW = 8  # questions over all channels; each prompt is computed anew, so 8 are enough
BETWEEN = 10  # lines between questions
BEFORE = 60  # lines before the first question
CAPABLE = {"MODEL_PROFILE": "capable"}  # the small default model is to read what a large one reads
SOONER = 0.4  # goal for the ratio of the times to the first word


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario: questions on `channels` channels, in turn or `at_once`.

    All are asked by `asker` or, if that is empty, each by the line's real speaker. With `cron`, a
    digest is requested after each round.
    """

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
    """The results of a case, without cron's requests: mean tokens of a prompt, percentage of prompt
    tokens from the cache, and mean seconds to the first word."""

    tokens: float
    cached: float
    first: float


async def figures() -> AsyncIterator[Figure]:
    """Yield for each case the share of cached tokens and the time to the first word."""
    try:
        lines()
    except NoCorpus as error:
        print(f"  skipped: {error}")
        return
    wanted = os.environ.get("CASE", "")
    if wanted in DAY:
        async for figure in _day():
            yield figure
    for case in (case for case in CASES if wanted in case.name):
        ours = await _played(case, QUESTIONS, lambda bot: bot, CAPABLE)
        for figure in _figures(f"{case.name}, ours", ours):
            yield figure
        async with plain_engine() as settings:
            window = await _played(case, OF_THE_WINDOW // case.channels, _window, settings)
        for figure in _figures(f"{case.name}, window", window):
            yield figure
        shifted = await _played(case, OF_THE_WINDOW // case.channels, _window, CAPABLE)
        for figure in _figures(f"{case.name}, window, our engine", shifted):
            yield figure
        yield Figure(f"{case.name}: ours to window", ours.first / window.first, "", goal=SOONER)


async def _day() -> AsyncIterator[Figure]:
    """Yield the share of prompt tokens that are a prefix of the channel's previous prompt."""
    prompts: list[Prompt] = []
    with tempfile.TemporaryDirectory() as name:
        async with (
            StrongModel().running() as model,
            Database.open(Path(name) / "log.db") as database,
            ours(Path(name), model.url) as bot,
        ):
            channel = Channel(ChatLog(database), 0)
            await channel.goes_on(SHOWN)
            for number in range(ALL_DAY):
                await channel.goes_on(BETWEEN)
                asked = await channel.question(f"nick{number % PEOPLE:02}")
                turn = Turn(number, "", asked.who, asked.text, f"Of {number} this: " + "so. " * 50)
                played = model.play(turn)
                answer = await bot.ask(channel, asked, SHOWN)
                prompts += played.requests[:1]
                await channel.answered(asked, answer.text)
    tokens = sum(each.tokens for each in prompts[1:])
    shared = sum(second.shared_with(first) for first, second in pairwise(prompts))
    yield Figure(f"{DAY}: prompt", tokens / len(prompts[1:]), "tokens")
    yield Figure(f"{DAY}: of the previous prompt", shared / tokens * 100, "%", least=LEAST_SHARED)


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
    """Play a case with `questions` questions per channel, on a fresh server with `settings`."""
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
    """Answer one question on each channel, in turn or concurrently, and log the answers."""

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
    """Run a server with a fresh engine; yield its client, a tendril, and an empty log."""
    with tempfile.TemporaryDirectory() as name:
        async with (
            small_server(**settings) as (http, _),
            Database.open(Path(name) / "log.db") as database,
            ours(Path(name), str(http.base_url)) as bot,
        ):
            yield http, bot, ChatLog(database)
