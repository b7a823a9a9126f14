"""A day on a real network in short: cut connections, splits, collisions of nicks, and kicks.

`DAY_ROUNDS=30` is a whole day; by itself it is an hour or two of one.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harnesses.irc.tendril import IrcTendril
from harnesses.irc.transport.network import Network
from terrarium.backoff import Backoff
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import Ircd
from tests.kit.netsplit import Hub, hub
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE

ROUNDS = int(os.environ.get("DAY_ROUNDS", "6"))
COLLISIONS = range(2, 99, 3)
"""Rounds in which somebody takes our nick while we are away."""

SPLITS = (5, 14, 26)
"""Rounds of these in which that happens on the other server, and the network splits."""

KICKS = (3, 20)
"""Rounds with a kick: after a third one within an hour the bot stays away."""


async def until(true: Callable[[], bool]) -> None:
    """Return when what we know of ourselves has become so; nobody else would tell that."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_back(network: Network) -> None:
    """Return when the bot is in the room under its own nick."""
    await until(lambda: network.nick == "Terra" and ROOM in network.roster.channels)


@dataclass(frozen=True, slots=True)
class BadDay:
    """The network, the bot, and somebody who asks it and can end its connections."""

    net: Hub
    leaf: Ircd
    asker: IrcClient
    tendril: IrcTendril
    script: ScriptedOpenAI
    chance: random.Random

    @property
    def network(self) -> Network:
        """The bot's side of the network."""
        return self.tendril.networks["irc"]

    async def round(self, number: int) -> None:
        """Ask one question, and cut the connection before or after it is answered; at times
        somebody takes the nick meanwhile, the network splits, or the bot is kicked."""
        self.script.hang(f"answer {number}")
        before = len(self.script.requests)
        await self.asker.say(ROOM, f".ask riddle {number}?")
        await self.script.arrived(before + 1)
        ready = self.chance.choice(("before", "away", "back"))
        if ready == "before":
            await self._answer(number)
        await self.cut(number, ready)
        await until_back(self.network)
        if ready != "before":
            await self.asker.expect(rf"PRIVMSG {ROOM} :asker: answer {number}$")
        if number in KICKS:
            await self.asker.send(f"KICK {ROOM} Terra :out")
            await self.asker.expect(rf"KICK {ROOM} Terra")
            await self.asker.expect(rf":Terra!\S+ JOIN :?{ROOM}")
        await self.asker.say(ROOM, f"heard {number}")
        self.script.hold()

    async def _answer(self, number: int) -> None:
        self.script.release()
        await self.asker.expect(rf"PRIVMSG {ROOM} :asker: answer {number}$")

    async def cut(self, number: int, ready: str) -> None:
        """End the bot's connection and wait until it has another; the answer is `ready` then."""
        server = self.leaf if number in SPLITS else self.net.ircd
        async with irc_client(server.port, "thief") as thief:
            await self.asker.send("KILL Terra :a bad day")
            await self.asker.expect(r":Terra\S* QUIT")
            if number in COLLISIONS:
                await thief.send("NICK Terra")
                await thief.expect(r":thief!\S+ NICK :?Terra$")
            await self.asker.say(ROOM, f"in the gap {number}")
            if ready == "away":
                self.script.release()
            await until(lambda: not self.network.connected.is_set())
            await until(self.network.connected.is_set)
            if ready == "back":
                self.script.release()
            if number in SPLITS:
                await self.split()
            await thief.send("QUIT :had it")
            await thief.wait_closed()

    async def split(self) -> None:
        """Split the network, whose other half has one of our nick, and link it again."""
        await self.asker.expect(rf":Terra_!\S+ JOIN :?{ROOM}")
        await self.net.split()
        await self.asker.expect(r":Terra_!\S+ NICK :?Terra$")
        await self.net.link()
        # Ours is the younger one.
        await self.asker.expect(r":Terra!\S+ NICK :?\d\S+")
        # The asker may hear of it before the bot does.
        await until(lambda: self.network.nick != "Terra")


@pytest.mark.slow
async def test_on_a_bad_day_no_question_no_answer_and_no_line_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    async with hub() as net, net.leaf() as leaf, ScriptedOpenAI() as script:
        config = irc_config(tmp_path, net.ircd.port, script.url, irc={"rejoin_after": 0.1})
        async with irc_client(net.ircd.port, "asker") as asker:
            await asker.join(ROOM)
            await asker.send(f"MODE {ROOM} +H 50:1h")
            await asker.become_operator()
            async with irc_tendril(config) as tendril:
                day = BadDay(net, leaf, asker, tendril, script, random.Random(7))
                day.network._backoff = Backoff(0.5, 1.0)  # a day in a minute
                for number in range(1, ROUNDS + 1):
                    await day.round(number)
                await asker.say(ROOM, ".ping")
                await asker.expect("asker: pong")
    once = [
        line
        for number in range(1, ROUNDS + 1)
        for line in (
            f"asker: answer {number}",
            f".ask riddle {number}?",
            f"in the gap {number}",
            f"heard {number}",
        )
    ]
    kept = Counter(text for kind, _, text in await logged(config) if kind == "PRIVMSG")
    assert {line: kept[line] for line in once if kept[line] != 1} == {}
    said = Counter(line.partition(f" PRIVMSG {ROOM} :")[2] for line in asker.lines)
    answers = {f"asker: answer {number}": 1 for number in range(1, ROUNDS + 1)}
    assert {text: count for text, count in said.items() if "answer" in text} == answers
    assert len(script.requests) == ROUNDS
