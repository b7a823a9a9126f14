"""Prefix caching of a channel's prompts, and the time to the first word of an answer.

Channels are replayed from logs of #ubuntu (`DATA` names their folder), and every few lines the next
one is asked as a question to the bot. The real model answers. Each case runs three times: with
Terrarium's layout; with a sliding window of the last lines on llama.cpp with its default cache,
which reuses a common prefix only; and with the sliding window on our engine, which also shifts the
cached rest when lines drop out of a prompt that is still in its slot. Cached tokens are counted by
the engine. `CASE` selects cases by a part of their name.
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
OF_THE_WINDOW = 8  # questions over all channels; each prompt is computed anew, so 8 are enough
BETWEEN = 10  # lines between questions
BEFORE = 60  # lines before the first question
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
