"""Nobody who is no person is answered: services, servers, the modules of a bouncer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from storage.chat_log.event import EVERYTHING, SPOKEN
from storage.log import Query
from tests.kit.bouncers import znc
from tests.kit.irc_client import irc_client
from tests.kit.irc_script import Wire, listening
from tests.kit.irc_tendril import irc_config, irc_tendril
from tests.kit.ircd import inspircd
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import until


async def test_a_bouncer_is_told_nothing_when_its_server_goes_and_comes(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        script.default = Answer("Shutdown")  # a command of ZNC, and its user may give it
        async with inspircd() as first:
            port = first.port
            async with znc(port) as bouncer:
                irc = {"password": bouncer.password}
                config = irc_config(tmp_path, bouncer.port, script.url, irc=irc)
                async with irc_tendril(config) as tendril:
                    log = tendril.services.log
                    await first.kill()
                    ours = Query(scope=EVERYTHING, own=True, types=SPOKEN, limit=100)
                    said = Query(scope=EVERYTHING, nick="*status", limit=100)
                    await until(lambda: log.find(said))
                    async with inspircd(port) as second, irc_client(second.port, "alice") as alice:
                        await alice.meet()
                        await alice.ping()
                    assert bouncer.process.returncode is None
                    # What we say is logged a moment after it is heard.
                    lines = await until(lambda: log.find(ours))
                    assert [line.text for line in lines] == ["alice: pong"]
        assert script.requests == []
        assert "status" not in json.dumps(script.beside)


SENDERS = (
    "NickServ!NickServ@services.libera.chat",
    "ChanServ!services@services.oftc.net",
    "Global!g@services.example",
    "Q!TheQBot@CServe.quakenet.org",
    "irc.example.org",
    "services",
    "*status!znc@znc.in",
    "*controlpanel!controlpanel@znc.in",
    "-psyBNC!psyBNC@lam3rz.de",
    "someone!bip@b.i.p",
)


async def test_services_servers_and_bouncers_are_never_answered(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, listening() as listener:

        async def welcomed() -> Wire:
            wire = await listener.accept()
            await wire.welcome()
            return wire

        config = irc_config(tmp_path, listener.port, script.url, irc={"channels": ["#c"]})
        connecting = asyncio.create_task(welcomed())
        async with irc_tendril(config):
            wire = await connecting
            for sender in SENDERS:
                before = len(wire.lines)
                for words in ("This nickname is registered.", ".ping", "Terra: hi", "nolog"):
                    await wire.say(f":{sender} PRIVMSG Terra :{words}")
                    await wire.say(f":{sender} PRIVMSG #c :.ping {words}")
                    await wire.say(f":{sender} PRIVMSG #c :Terra: {words}")
                await wire.say(":alice!a@h PRIVMSG #c :.ping")
                await wire.until("PRIVMSG #c :alice: pong")
                said = [line for line in wire.lines[before:] if line[:4] in ("PRIV", "NOTI")]
                assert said == ["PRIVMSG #c :alice: pong"], sender
        assert script.requests == []
