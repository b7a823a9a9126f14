"""Lines that are lost while PostgreSQL and the IRC tendrils are killed again and again.

Somebody talks without a pause, except between a kill of a tendril and its QUIT. Each second kill of
a tendril comes while PostgreSQL is away. Every line that the IRC server passed on while a tendril
was in the channel has to be in the log, once.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.figure import Figure
from harnesses.core.launcher.supervisor import Program, Supervisor
from tests.kit.command import environment_without_settings, terrarium
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.ircd import inspircd
from tests.kit.postgres import PostgresServer, postgres_server

KILLS = int(os.environ.get("KILLS", "20"))
MODES = {"one tendril": ("Terra",), "with a standby": ("Terra", "Terra_")}
ROOM = "#terrarium"
GOAL = 5.0  # seconds off IRC after the database is back
PAUSE = 0.05  # seconds between two lines
SEEN = re.compile(r":(?P<nick>\S+?)!\S+ (?P<verb>JOIN|QUIT|NICK|PRIVMSG) (?P<rest>.*)")


async def figures() -> AsyncIterator[Figure]:
    """Yield what was lost by one tendril, then by one with a standby."""
    for name, nicks in MODES.items():
        scene = await _run(nicks)
        heard, logged = set(scene.heard()), Counter(scene.logged)
        yield Figure(f"{name}: lines heard", len(heard), "")
        yield Figure(f"{name}: of them not logged", len(heard - logged.keys()), "", 0)
        yield Figure(f"{name}: logged twice", sum(n > 1 for n in logged.values()), "", 0)
        longest = max(scene.absences, default=0.0)
        yield Figure(f"{name}: longest off IRC, database back", longest, "s", GOAL)


@dataclass(slots=True)
class _Scene:
    """One run: what an observer received, in the IRC server's order, and what was logged."""

    observer: IrcClient
    supervisor: Supervisor
    quiet: asyncio.Lock = field(default_factory=asyncio.Lock)
    absences: list[float] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)

    def heard(self) -> list[str]:
        """Return the lines that came while a tendril was in the channel."""
        return self._read()[1]

    def present(self) -> set[str]:
        """Return the nicks of the tendrils in the channel."""
        return self._read()[0]

    def _read(self) -> tuple[set[str], list[str]]:
        present, heard = set[str](), list[str]()
        for line in self.observer.lines:
            if not (match := SEEN.match(line)):
                continue
            nick, verb, rest = match.group("nick", "verb", "rest")
            if verb == "PRIVMSG":
                words = rest.partition(":")[2]
                if present and words.startswith("line "):
                    heard.append(words)
            elif nick.startswith("Terra"):
                present.discard(nick)
                if verb == "JOIN":
                    present.add(nick)
                elif verb == "NICK":
                    present.add(rest.lstrip(":"))
        return present, heard


async def _run(nicks: tuple[str, ...]) -> _Scene:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(postgres_server())
        ircd = await stack.enter_async_context(inspircd())
        observer = await stack.enter_async_context(irc_client(ircd.port, "eve"))
        talker = await stack.enter_async_context(irc_client(ircd.port, "alice"))
        for person in (observer, talker):
            await person.join(ROOM)
        settings = environment_without_settings() | {
            "IRC_SERVER": "127.0.0.1",
            "IRC_PORT": str(ircd.port),
            "IRC_CHANNELS": ROOM,
            "IRC_STANDBY": str(len(nicks) > 1),
            "AGENT_API_URL": "http://127.0.0.1:9",
            "STORAGE_URL": postgres.create("bot"),
        }
        command = (sys.executable, "-m", "harnesses.cli", "run", "irc", "--data", str(folder))
        programs = [Program(nick, command, settings) for nick in nicks]
        scene = _Scene(observer, Supervisor(programs, lambda _: None))
        supervising = asyncio.create_task(scene.supervisor.run())
        try:
            async with asyncio.timeout(120):
                while scene.present() != set(nicks):  # noqa: ASYNC110 - of other processes
                    await asyncio.sleep(0.1)
            talking = asyncio.create_task(_talk(talker, scene.quiet))
            await _kill(scene, postgres, random.Random(1))
            talking.cancel()
            await observer.settle()
            await asyncio.sleep(10)  # a standby may just be taking over
        finally:
            supervising.cancel()
            await asyncio.wait({supervising})
        done = await terrarium("logs", "export", "--data", str(folder), cwd=folder, **settings)
        scene.logged = re.findall(r"line \d+", done.out)
        return scene


async def _talk(talker: IrcClient, quiet: asyncio.Lock) -> None:
    number = 0
    while True:
        async with quiet:
            number += 1
            await talker.say(ROOM, f"line {number}")
        await asyncio.sleep(PAUSE)


async def _kill(scene: _Scene, postgres: PostgresServer, rng: random.Random) -> None:
    """Kill in turn: PostgreSQL and, while it is away, a tendril; then a tendril alone."""
    for number in range(KILLS):
        turn = number % 3
        if turn == 0:
            await asyncio.to_thread(postgres.kill)
        else:
            await _kill_tendril(scene, rng)
        await asyncio.sleep(rng.uniform(1, 4))
        if turn == 1:
            await asyncio.to_thread(postgres.start)
            await _note_absence(scene)
        if turn:
            await asyncio.sleep(rng.uniform(6, 10))
    if KILLS % 3 == 1:
        await asyncio.to_thread(postgres.start)
        await _note_absence(scene)


async def _kill_tendril(scene: _Scene, rng: random.Random) -> None:
    """Kill a tendril, and wait until everybody has seen that it is gone."""
    async with scene.quiet:
        name = rng.choice(sorted(scene.supervisor.pids))
        before = scene.present()
        psutil.Process(scene.supervisor.pids[name]).kill()
        with suppress(TimeoutError):  # it may not have been in the channel
            async with asyncio.timeout(1):
                while scene.present() == before:  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.01)


async def _note_absence(scene: _Scene) -> None:
    began = time.monotonic()
    while not scene.present():  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.05)
    scene.absences.append(time.monotonic() - began)
