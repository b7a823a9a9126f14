"""Behind a bouncer: what was missed is logged once, nothing is answered, nobody seems to come."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from terrarium.config import Config
from tests.kit.bouncers import bip, znc
from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import inspircd, ngircd
from tests.kit.patience import until

NOBODY = "http://127.0.0.1:9"


async def is_logged(config: Config, text: str) -> bool:
    return any(text == each for _, _, each in await logged(config))


async def test_what_is_said_while_the_bot_is_away_is_logged_once(tmp_path: Path) -> None:
    async with (
        inspircd() as ircd,
        znc(ircd.port) as bouncer,
        irc_client(ircd.port, "alice") as alice,
    ):
        irc = {"password": bouncer.password, "channels": [ROOM]}
        config = irc_config(tmp_path, bouncer.port, NOBODY, irc=irc)
        async with irc_tendril(config):
            await alice.meet(ROOM)
            await alice.say(ROOM, "heard live")
            await alice.ping()
        await alice.say(ROOM, "said meanwhile")
        await alice.say(ROOM, ".ping meanwhile")
        await alice.say(ROOM, ".nolog off")
        await alice.say("Terra", "psst, meanwhile")
        await alice.settle()
        for number in range(2):
            async with irc_tendril(config) as tendril:
                await alice.say(ROOM, f"back {number}")
                await alice.ping()
                await until(lambda: is_logged(config, "said meanwhile"))
                await tendril.services.log.flush()
    seen = Counter((kind, nick, text) for kind, nick, text in await logged(config))
    for text in ("heard live", "said meanwhile", ".ping meanwhile", "back 0", "back 1"):
        assert seen["PRIVMSG", "alice", text] == 1, seen
    assert seen["PRIVMSG", "alice", ".nolog off"] == 0
    assert seen["JOIN", "Terra", ""] <= 1, seen
    assert seen["PRIVMSG", "Terra", "alice: pong"] == 3


async def test_the_gap_of_a_cut_connection_is_logged_once(tmp_path: Path) -> None:
    async with inspircd() as ircd, irc_client(ircd.port, "alice") as alice:
        await alice.join(ROOM)
        await alice.send(f"MODE {ROOM} +H 20:1h")
        config = irc_config(tmp_path, ircd.port, NOBODY)
        async with irc_tendril(config):
            await alice.say(ROOM, "before")
            await alice.ping()
        await alice.say(ROOM, "in the gap")
        await alice.say(ROOM, "Terra: in the gap?")
        await alice.settle()
        async with irc_tendril(config):
            await alice.say(ROOM, "after")
            await alice.ping()
            await until(lambda: is_logged(config, "Terra: in the gap?"))
    seen = Counter(text for _, nick, text in await logged(config) if nick == "alice")
    for text in ("before", "in the gap", "Terra: in the gap?", "after"):
        assert seen[text] == 1, seen
    said = [text for _, nick, text in await logged(config) if nick == "Terra" and "pong" in text]
    assert len(said) == 2


async def test_what_is_played_back_just_before_a_stop_is_logged(tmp_path: Path) -> None:
    async with inspircd() as ircd, irc_client(ircd.port, "alice") as alice:
        await alice.join(ROOM)
        await alice.send(f"MODE {ROOM} +H 50:1h")
        config = irc_config(tmp_path, ircd.port, NOBODY)
        async with irc_tendril(config):
            await alice.ping()
        gap = [f"in the gap {number}" for number in range(40)]
        for words in gap:
            await alice.say(ROOM, words)
        await alice.settle()
        async with irc_tendril(config):
            await alice.ping()
    seen = Counter(text for _, nick, text in await logged(config) if nick == "alice")
    assert {words: seen[words] for words in gap if seen[words] != 1} == {}


async def test_bip_lets_us_in_and_its_backlog_is_not_answered(tmp_path: Path) -> None:
    async with ngircd() as ircd, bip(ircd.port) as bouncer, irc_client(ircd.port, "alice") as alice:
        await alice.meet(ROOM)
        await alice.say(ROOM, ".ping")
        await alice.say(ROOM, "Terra: hello")
        await alice.say("Terra", ".ping")
        await alice.settle()
        irc = {"password": bouncer.password, "channels": [ROOM]}
        config = irc_config(tmp_path, bouncer.port, NOBODY, irc=irc)
        async with irc_tendril(config):
            await alice.say(ROOM, ".ping now")
            await alice.expect("alice: pong")
            await alice.settle()
        answers = [line for line in alice.lines if line.startswith(":Terra!") and "pong" in line]
        assert len(answers) == 1
    lines = [text for _, nick, text in await logged(config) if nick == "alice" and text]
    assert lines == [".ping now"]
