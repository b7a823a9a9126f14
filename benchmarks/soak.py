"""Soak test on InspIRCd: twenty channels, fifty people, a hundred lines and a question a second.

The server applies its default flood protection (fakelag) to the bot, but not to the people of the
benchmark. The engine answers immediately. Every line must be in the log exactly once and in its
channel's order, and every question must be answered to its asker. `SECONDS=30` makes it shorter.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.echo_engine import echo_engine
from benchmarks.figure import Figure
from storage.chat_log.event import SPOKEN, Event, Place, Scope
from storage.db.database import Database
from storage.log import ChatLog, Query
from tests.kit.command import begun
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.ircd import inspircd
from tests.kit.ports import free_port

SECONDS = float(os.environ.get("SECONDS", "300"))
CHANNELS = [f"#room{number:02}" for number in range(20)]
PEOPLE, LINES_A_SECOND = 50, 100
PATIENCE = 60.0  # seconds to wait for the last answers
MIB = 1 << 20

# A port for the bot with InspIRCd's default flood protection.
GUARDED = """
<bind address="127.0.0.1" port="{port}" type="clients">
<connect name="bot" allow="*" port="{port}" timeout="60" pingfreq="120" hardsendq="1M"
 softsendq="64K" recvq="64K" localmax="100" globalmax="100" resolvehostnames="no" useident="no"
 maxchans="100">
"""


@dataclass
class Soak:
    """The lines sent by channel, and the askers' nicks by question."""

    said: Counter[str] = field(default_factory=Counter)
    asked: dict[str, str] = field(default_factory=dict)


async def figures() -> AsyncIterator[Figure]:
    """Yield differences of the log, unanswered questions, disconnects, and memory growth."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        ircd = await stack.enter_async_context(inspircd(extra=GUARDED.format(port=port)))
        engine = await stack.enter_async_context(echo_engine())
        watcher = await stack.enter_async_context(irc_client(ircd.port, "watcher"))
        people = [
            await stack.enter_async_context(irc_client(ircd.port, f"p{number:02}"))
            for number in range(PEOPLE)
        ]
        for channel in CHANNELS:
            await watcher.join(channel)
        for number, person in enumerate(people):
            for channel in rooms(number):
                await person.join(channel)
        settings = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(port)}
        settings |= {"IRC_CHANNELS": ",".join(CHANNELS), "AGENT_API_URL": engine.url}
        data = folder / "data"
        bot = begun("run", "irc", "--data", str(data), cwd=folder, **settings)
        process = await stack.enter_async_context(bot)
        for _ in CHANNELS:
            await watcher.expect(r":Terra!\S+ JOIN ", timeout=60)
        memory = psutil.Process(process.pid).memory_info
        soak = Soak()
        await _talk(people, SECONDS / 5, soak)
        warm = memory().rss
        await _talk(people, SECONDS * 4 / 5, soak)
        grown = memory().rss / warm - 1
        answered = await _answered(watcher, soak)
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        heard, logged = heard_by(watcher), await logged_in(data / "irc.db")
        quits = sum(" QUIT " in line or " KICK " in line for line in watcher.lines[:-2])
        yield Figure("lines said", soak.said.total(), "")
        yield Figure("channels whose log differs", _differing(heard, logged), "", 0)
        yield Figure("questions asked", len(soak.asked), "")
        yield Figure("questions not answered to who asked", len(soak.asked) - answered, "", 0)
        yield Figure("times the bot was cut off", quits, "", 0)
        yield Figure("memory after a fifth of the time", warm / MIB, "MiB")
        yield Figure("growth of memory since then", grown * 100, "%", 5)


def rooms(number: int) -> list[str]:
    """Return the two channels of person number `number`."""
    return [CHANNELS[number % 20], CHANNELS[(number * 3 + 7) % 20]]


async def _talk(people: list[IrcClient], seconds: float, soak: Soak) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for count in range(int(seconds * LINES_A_SECOND)):
        await asyncio.sleep(began + count / LINES_A_SECOND - loop.time())
        number = soak.said.total()
        person = people[number * 7 % PEOPLE]
        channel = rooms(number * 7 % PEOPLE)[number // PEOPLE % 2]
        text = f"line {number} says nothing much"
        if number % LINES_A_SECOND == 0:
            text = f".terrarium q{number}"
            soak.asked[f"q{number}"] = person.nick
        soak.said[channel] += 1
        await person.say(channel, text)


async def _answered(watcher: IrcClient, soak: Soak) -> int:
    """Return how many questions were answered to their askers; wait up to PATIENCE for all."""
    began = asyncio.get_running_loop().time()
    while True:
        found = {
            (match[2], match[1])
            for line in watcher.lines
            if (match := re.search(r":Terra!\S+ PRIVMSG \S+ :(p\d\d): .*(q\d+)$", line))
        }
        right = len(found & soak.asked.items())
        if right == len(soak.asked) or asyncio.get_running_loop().time() - began > PATIENCE:
            return right
        await watcher.settle()
        await asyncio.sleep(1)


def heard_by(watcher: IrcClient) -> dict[str, list[tuple[str, str]]]:
    """Return nick and text of people's lines by channel, in the server's order."""
    heard: dict[str, list[tuple[str, str]]] = {channel: [] for channel in CHANNELS}
    for line in watcher.lines:
        if match := re.match(r":(p\d\d)!\S+ PRIVMSG (#\S+) :(.*)", line):
            heard[match[2]].append((match[1], match[3]))
    return heard


async def logged_in(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the same from the log, in the order of event ids."""
    logged: dict[str, list[tuple[str, str]]] = {}
    async with Database.open(path) as database:
        for channel in CHANNELS:
            scope = Scope.from_places(Place("irc", channel))
            query = Query(scope=scope, types=SPOKEN, own=False, limit=1_000_000)
            events = await ChatLog(database).find(query)
            logged[channel] = [(event.nick, event.text) for event in sorted(events, key=_by_id)]
    return logged


def _by_id(event: Event) -> int:
    return event.id


def _differing(
    heard: dict[str, list[tuple[str, str]]], logged: dict[str, list[tuple[str, str]]]
) -> int:
    return sum(heard[channel] != logged[channel] for channel in CHANNELS)
