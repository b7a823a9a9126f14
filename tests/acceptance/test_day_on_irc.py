"""A day on a real network in short: cut connections, splits, collisions of nicks, and kicks; and
one on which those who ask leave, change nick, or see the bot restarted before they are answered.

`DAY_ROUNDS=30` is a whole day; by itself it is an hour or two of one.
"""

from __future__ import annotations

import os
import random
import re
import signal
from asyncio.subprocess import Process
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harnesses.core.tendril.turns import RESTARTED
from harnesses.irc.tendril import IrcTendril
from harnesses.irc.transport.network import Network
from terrarium.clock import Backoff
from tests.kit.command import begun
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import Ircd, ngircd
from tests.kit.netsplit import Hub, hub
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import until

ROUNDS = int(os.environ.get("DAY_ROUNDS", "6"))
COLLISIONS = range(2, 99, 3)
"""Rounds in which somebody takes our nick while we are away."""

SPLITS = (5, 14, 26)
"""Rounds of these in which that happens on the other server, and the network splits."""

KICKS = (3, 20)
"""Rounds with a kick: after a third one within an hour the bot stays away."""


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
        answer = rf"PRIVMSG {ROOM} :asker: answer {number}$"
        if ready == "before":
            self.script.release()
            await self.asker.expect(answer)
        await self.cut(number, ready)
        network = self.network
        await until(lambda: network.nick == "Terra" and ROOM in network.roster.channels)
        if ready != "before":
            await self.asker.expect(answer)
        if number in KICKS:
            await self.asker.send(f"KICK {ROOM} Terra :out")
            await self.asker.expect(rf"KICK {ROOM} Terra")
            await self.asker.expect(rf":Terra!\S+ JOIN :?{ROOM}")
        await self.asker.say(ROOM, f"heard {number}")
        self.script.hold()

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
async def test_on_a_bad_day_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
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
                await asker.ping()
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


FATES = ("stays", "changes nick", "quits", "parts", "is kicked", "sees a restart")
"""What becomes of somebody who has asked; half of them have changed nick before."""


@dataclass(slots=True)
class Town:
    """A room in which each round somebody new asks, as a witness sees it, and the process of the
    bot, which runs on `stack`. Each nick in `owed` is to hear one line, any of those."""

    folder: Path
    port: int
    witness: IrcClient
    script: ScriptedOpenAI
    stack: AsyncExitStack
    chance: random.Random
    owed: dict[str, set[str]] = field(default_factory=dict)
    process: Process = field(init=False)

    async def start(self) -> None:
        """Start the bot."""
        settings = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(self.port)}
        settings |= {"AGENT_API_URL": self.script.url, "IRC_PERSON_PER_MINUTE": "600"}
        self.process = await self.stack.enter_async_context(
            begun("run", "irc", "--data", "data", cwd=self.folder, **settings)
        )
        await self.witness.expect(rf":Terra!\S+ JOIN :?{ROOM}")

    async def round(self, number: int, fate: str) -> None:
        """Let a guest ask, and something happen to them before they are answered."""
        nick, answer = f"guest{number}", f"answer {number}"
        before = len(self.script.requests)
        self.script.hold().think(answer)
        async with irc_client(self.port, nick) as guest:
            await guest.join(ROOM)
            await guest.say(ROOM, f".ask riddle {number}?")
            await self.script.arrived(before + 1)
            if fate == "changes nick" or self.chance.random() < 0.5:
                nick = f"renamed{number}"
                await guest.send(f"NICK {nick}")
                await self.witness.expect(rf" NICK :?{nick}$")
                await self.bot_has_read()
            if fate == "sees a restart":
                await self.restart(guest, nick, answer)
            elif fate in ("stays", "changes nick"):
                self.owed[nick] = {answer}
                self.script.release()
                await self.witness.expect(f" :{nick}: ")
            else:
                await self.leave(guest, nick, fate)

    async def bot_has_read(self) -> None:
        """Return once the bot has taken in all that the witness has seen, and answered that."""
        await self.witness.ping()

    async def leave(self, guest: IrcClient, nick: str, how: str) -> None:
        """Make the guest leave; the model answers once the bot has let go of it."""
        self.script.disconnected.clear()
        if how == "is kicked":
            await self.witness.send(f"KICK {ROOM} {nick} :out")
        else:
            await guest.send("QUIT :bye" if how == "quits" else f"PART {ROOM}")
        await self.script.client_gone()
        self.script.release()

    async def restart(self, guest: IrcClient, nick: str, answer: str) -> None:
        """Stop the bot while the guest waits, and start it again; they are answered just before,
        or too late and under yet another nick, or have left."""
        end = self.chance.choice(("answered", "too late", "left"))
        self.process.send_signal(signal.SIGTERM)
        if end == "left":
            await self.leave(guest, nick, "quits")
        elif end == "answered":
            self.owed[nick] = {answer, RESTARTED}  # a slow machine may take longer than the bot has
            self.script.release()
        else:
            self.owed[f"late_{nick}"] = {RESTARTED}
            await guest.send(f"NICK late_{nick}")
        await self.witness.expect(r":Terra!\S+ QUIT")
        assert await self.process.wait() == 0
        self.script.release()
        await self.start()

    def heard(self) -> tuple[dict[str, list[str]], list[str]]:
        """Return what the bot has said to each guest, and its lines to those who were gone."""
        said, astray = defaultdict[str, list[str]](list), list[str]()
        present = set[str]()
        for line in self.witness.lines:
            source, kind, *words = line.split(" ")
            nick = source[1:].partition("!")[0]
            if kind == "JOIN":
                present.add(nick)
            elif kind in ("PART", "QUIT", "KICK", "NICK"):
                present.discard(words[1] if kind == "KICK" else nick)
                present |= {words[0].removeprefix(":")} if kind == "NICK" else set()
            elif match := re.match(r":Terra!\S+ \w+ \S+ :([a-z_]+\d+): (.*)", line):
                said[match[1]].append(match[2])
                astray += [line] if match[1] not in present else []
        return said, astray


@pytest.mark.slow
async def test_whoever_stays_is_answered_and_nobody_else(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with (
        ngircd() as ircd,
        ScriptedOpenAI() as script,
        irc_client(ircd.port, "witness") as witness,
        AsyncExitStack() as stack,
    ):
        await witness.join(ROOM)
        town = Town(tmp_path, ircd.port, witness, script, stack, chance)
        await town.start()
        fates = [each for _ in range(0, ROUNDS, len(FATES)) for each in chance.sample(FATES, 6)]
        for number, fate in enumerate(fates[:ROUNDS], 1):
            await town.round(number, fate)
        await town.bot_has_read()
    said, astray = town.heard()
    assert astray == []
    assert said.keys() == town.owed.keys()
    for nick, lines in said.items():
        assert len(lines) == 1, (nick, lines)
        assert lines[0] in town.owed[nick]
