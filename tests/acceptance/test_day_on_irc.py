"""A day on a real network in short: cut connections, a split, collisions and kicks.

`DAY_ROUNDS=30` is a whole day; by itself it is an hour or two of one.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

from harnesses.irc.tendril import IrcTendril
from terrarium.backoff import Backoff
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import inspircd
from tests.kit.netsplit import hub
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE

ROUNDS = int(os.environ.get("DAY_ROUNDS", "6"))
KICKS = (5, 20)
"""Rounds with a kick: after a third one within an hour the bot stays away."""
OPER = '<class name="all" commands="*" usermodes="*" chanmodes="*" privs="*">'
OPER += '<type name="all" classes="all"><oper name="root" password="root" host="*" type="all">'


async def until_back(tendril: IrcTendril) -> None:
    """Return when the bot is in the room under its own nick; nobody else would tell that."""
    network = tendril.networks["irc"]
    async with asyncio.timeout(PATIENCE):
        while not (network.nick == "Terra" and ROOM in network.channels):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def until_gone(tendril: IrcTendril) -> None:
    """Return when the bot knows that its connection is gone."""
    async with asyncio.timeout(PATIENCE):
        while tendril.networks["irc"].connected.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def kill(oper: IrcClient, tendril: IrcTendril) -> None:
    """Have the server end the bot's connection."""
    await oper.send("KILL Terra :a bad day")
    await oper.expect(r":Terra\S* QUIT")
    await until_gone(tendril)


async def a_round(
    number: int, chance: random.Random, oper: IrcClient, tendril: IrcTendril, script: ScriptedOpenAI
) -> None:
    """One question, and a cut connection before, while or after it is answered; at times somebody
    takes the nick meanwhile, or the bot is kicked."""
    script.hang(f"answer {number}")
    before = len(script.requests)
    await oper.say(ROOM, f".ask riddle {number}?")
    await script.arrived(before + 1)
    when = chance.choice(("while", "after"))
    if when == "after":
        script.release()
        await oper.expect(rf"PRIVMSG {ROOM} :oper: answer {number}$")
    async with irc_client(oper.port, "thief") as thief:
        await kill(oper, tendril)
        if number % 3 == 0:
            await thief.send("NICK Terra")
        await oper.say(ROOM, f"in the gap {number}")
        async with asyncio.timeout(PATIENCE):
            while not tendril.networks["irc"].connected.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        script.release()
        await thief.send("QUIT :had it")
        await thief.wait_closed()
    await until_back(tendril)
    if when == "while":
        await oper.expect(rf"PRIVMSG {ROOM} :oper: answer {number}$")
    if number in KICKS:
        await oper.send(f"KICK {ROOM} Terra :out")
        await oper.expect(rf"KICK {ROOM} Terra")
        await oper.expect(rf":Terra!\S+ JOIN :?{ROOM}")
        await until_back(tendril)
    await oper.say(ROOM, f"heard {number}")


async def test_on_a_bad_day_no_question_no_answer_and_no_line_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    irc = {"rejoin_after": 0.1}
    async with ScriptedOpenAI() as script, inspircd(extra=OPER) as ircd:
        config = irc_config(tmp_path, ircd.port, script.url, irc=irc)
        async with irc_client(ircd.port, "oper") as oper:
            await oper.join(ROOM)
            await oper.send(f"MODE {ROOM} +H 50:1h")
            await oper.send("OPER root root")
            await oper.expect(" 381 ")
            async with irc_tendril(config) as tendril:
                tendril.networks["irc"]._backoff = Backoff(0.3, 0.5)  # a day in a minute
                for number in range(1, ROUNDS + 1):
                    await a_round(number, chance, oper, tendril, script)
                    script._released.clear()
                await oper.say(ROOM, ".ping")
                await oper.expect("oper: pong")
    # While somebody has its nick the bot is called Terra_.
    seen = Counter((kind, nick.rstrip("_"), text) for kind, nick, text in await logged(config))
    once = [
        line
        for number in range(1, ROUNDS + 1)
        for line in (
            ("PRIVMSG", "Terra", f"oper: answer {number}"),
            ("PRIVMSG", "oper", f".ask riddle {number}?"),
            ("PRIVMSG", "oper", f"in the gap {number}"),
            ("PRIVMSG", "oper", f"heard {number}"),
        )
    ]
    assert {line: seen[line] for line in once if seen[line] != 1} == {}
    said = Counter(line.partition(" :")[2] for line in oper.lines if ":Terra" in line)
    answers = {f"oper: answer {number}": 1 for number in range(1, ROUNDS + 1)}
    assert {text: count for text, count in said.items() if "answer" in text} == answers
    assert len(script.requests) == ROUNDS


async def test_after_a_netsplit_with_another_of_our_name_the_nick_is_regained(
    tmp_path: Path,
) -> None:
    async with (
        hub(OPER) as net,
        net.leaf() as leaf,
        ScriptedOpenAI() as script,
        irc_client(net.ircd.port, "bob") as bob,
        irc_client(leaf.port, "Terra") as other,
    ):
        await bob.join(ROOM)
        await other.join(ROOM)
        await bob.expect(rf":Terra!\S+ JOIN :?{ROOM}")
        await bob.send("OPER root root")
        await bob.expect(" 381 ")
        config = irc_config(tmp_path, net.ircd.port, script.url)
        async with irc_tendril(config) as tendril:
            assert tendril.networks["irc"].nick == "Terra_"
            await bob.send("SQUIT leaf.test :a split")
            await bob.expect(r":Terra!\S+ QUIT ")
            await bob.expect(r":Terra_!\S+ NICK :?Terra$")
            # The link comes back; the nick is younger here than there.
            await bob.expect(r":Terra!\S+ NICK :?\d\S+")
            await bob.say(ROOM, "Terra: hi")
            await bob.expect(rf":\d\S+!\S+ PRIVMSG {ROOM} :bob: ok")
            await other.send("QUIT :gone")
            await other.wait_closed()
            await until_back(tendril)
            await bob.say(ROOM, ".ping")
            await bob.expect(":Terra!.*:bob: pong")
    said = Counter(text for _, nick, text in await logged(config) if nick == "bob" and text)
    assert said == {"Terra: hi": 1, ".ping": 1}
