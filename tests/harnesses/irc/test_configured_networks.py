"""Networks with keys of their own, and a configuration that is read again while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harnesses.irc.transport import socks
from storage.chat_log.event import PUBLIC, SPOKEN
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.settings import log_path
from terrarium.config import Config
from tests.kit.irc_client import irc_client, irc_member
from tests.kit.irc_network import Ears, joined, running
from tests.kit.irc_scene import NOBODY
from tests.kit.irc_script import listening
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd, ngircd
from tests.kit.openai_script import ScriptedOpenAI


def config_of(data: Path, api_url: str, **own: Mapping[str, Any]) -> Config:
    """Return a configuration with these networks on loopback."""
    quick = {"server": "127.0.0.1", "lines_per_second": 100}
    named = {name: quick | dict(keys) for name, keys in own.items()}
    return irc_config(
        data, 1, api_url, irc={"networks": named, "mark": "~ ", "admins": ["root!*@*"]}
    )


async def test_prefix_admins_mark_and_persona_are_each_networks_own(tmp_path: Path) -> None:
    async with embedded_ircd() as one, embedded_ircd() as two, ScriptedOpenAI() as script:
        own = {"command_prefix": "!", "mark": "", "persona": "A pirate.", "admins": ["bob!*@*"]}
        config = config_of(
            tmp_path, script.url, one={"port": one.port}, two={"port": two.port, **own}
        )
        async with (
            irc_tendril(config),
            irc_client(one.port, "bob") as bob,
            irc_client(two.port, "bob") as bob_there,
        ):
            for each in (bob, bob_there):
                await each.join(ROOM)
            await bob.ask(".ask one?", rf"PRIVMSG {ROOM} :bob: ~ ok$")
            await bob_there.ask("!ask two?", rf"PRIVMSG {ROOM} :bob: ok$")
            first, second = (request["messages"][0]["content"] for request in script.requests)
            assert "A pirate." in second
            assert "A pirate." not in first
            await bob.ask(".status", "Only admins may do that")
            await bob_there.ask("!status", r"NOTICE bob :.*up 0:|PRIVMSG \S+ :bob: up 0:")


async def test_a_reload_takes_another_nick_and_connects_elsewhere_at_once(tmp_path: Path) -> None:
    async with embedded_ircd() as one, ngircd() as two:
        config = config_of(tmp_path, NOBODY, one={"port": one.port})
        async with irc_tendril(config) as tendril, irc_member(one.port, "alice") as alice:
            gaia = {"port": one.port, "nick": "Gaia"}
            both = config_of(tmp_path, NOBODY, one=gaia, two={"port": two.port})
            tendril.apply_config(both)
            await alice.expect(r":Terra!\S+ NICK :?Gaia$")
            await tendril.networks["two"].all_joined.wait()
            async with irc_member(two.port, "bob") as bob:
                await bob.ask(".ping", rf"PRIVMSG {ROOM} :bob: pong$")
                tendril.apply_config(config_of(tmp_path, NOBODY, two={"port": two.port}))
                await alice.expect(r":Gaia!\S+ QUIT ")
                await bob.ask(".ping", rf"PRIVMSG {ROOM} :bob: pong$")


async def test_another_connection_of_ours_is_no_person(tmp_path: Path) -> None:
    async with embedded_ircd() as ircd:
        both = {
            "one": {"port": ircd.port, "nick": "Duo"},
            "two": {"port": ircd.port, "nick": "Pirate"},
        }
        config = config_of(tmp_path, NOBODY, **both)
        async with irc_tendril(config) as tendril, irc_member(ircd.port, "alice") as alice:
            pirate = tendril.networks["two"]
            assert await pirate.say("PRIVMSG", ROOM, "Duo: .version")
            await alice.expect("Duo: .version$")
            await alice.ask("Duo: .ping", r":Duo!\S+ PRIVMSG \S+ :alice: pong$")
            await tendril.services.log.flush()
            events = await tendril.services.log.find(Query(scope=PUBLIC, network="one"))
            assert not [line for line in alice.lines if "Pirate: Terrarium" in line]
            assert [e.own for e in events if e.text == "Duo: .version"] == [True]


async def test_modes_and_lines_go_out_before_the_channels_are_joined() -> None:
    ears = Ears()
    async with listening() as listener:
        performed = ("PRIVMSG Q@example :AUTH me secret", "MODE Terra +x")
        async with running(listener.port, ears, umodes="+ix", perform=performed):
            wire = await listener.accept()
            await wire.until("USER")
            await wire.say(":s 001 Terra :Welcome Terra!~t@h", ":s 422 Terra :No MOTD")
            await wire.until("JOIN #c")
    sent = wire.lines[wire.lines.index("MODE Terra +ix") :]
    assert sent == [
        "MODE Terra +ix",
        "PRIVMSG Q@example :AUTH me secret",
        "MODE Terra +x",
        "JOIN #c",
    ]


@asynccontextmanager
async def socks_proxy(login: bytes = b"") -> AsyncIterator[tuple[int, list[bytes]]]:
    """Run a SOCKS5 proxy to loopback; yield its port and the names that it was asked for."""
    asked: list[bytes] = []
    connections: list[asyncio.Task[None]] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.create_task(serve(reader, writer)))
        await asyncio.wait(connections[-1:])
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        methods = (await reader.readexactly(2))[1]
        await reader.readexactly(methods)
        writer.write(b"\x05\x02" if login else b"\x05\x00")
        if login:
            words = await reader.readexactly(2)
            words += await reader.readexactly(words[1] + 1)
            words += await reader.readexactly(words[-1])
            writer.write(b"\x01\x00" if words == login else b"\x01\x01")
        header = await reader.readexactly(5)
        asked.append(await reader.readexactly(header[4]))
        port = int.from_bytes(await reader.readexactly(2), "big")
        writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
        there = await asyncio.open_connection("127.0.0.1", port)

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(4096):
                sink.write(data)
            sink.close()

        await asyncio.gather(
            pass_on(reader, there[1]), pass_on(there[0], writer), return_exceptions=True
        )

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked
        await asyncio.gather(*connections, return_exceptions=True)


async def test_a_socks_proxy_looks_up_the_name_and_may_ask_for_a_login() -> None:
    login = b"\x01\x02me\x06s:cret"
    async with embedded_ircd() as ircd, socks_proxy(login) as (port, asked):
        proxy = f"me:s%3Acret@127.0.0.1:{port}"
        settings = {"server": "frogs.onion", "socks5": proxy, "bind": "127.0.0.1"}
        async with joined(ircd.port, Ears(), **settings) as network:
            assert network.connected.is_set()
        for wrong, why in (("me:wrong@", "refuses the login"), ("", "asks for a login")):
            with pytest.raises(ConnectionRefusedError, match=why):
                await socks.connect(f"{wrong}127.0.0.1:{port}", "frogs.onion", 6667)
    assert asked == [b"frogs.onion"]


async def test_the_connection_comes_from_the_address_that_is_configured() -> None:
    async with embedded_ircd() as ircd, joined(ircd.port, Ears(), bind="127.0.0.2") as network:
        assert network.session.source.host == "127.0.0.2"


async def test_two_networks_are_answered_and_one_that_dies_stops_no_other(tmp_path: Path) -> None:
    async with embedded_ircd() as one, ngircd() as two, ScriptedOpenAI() as script:
        config = config_of(tmp_path, script.url, one={"port": one.port}, two={"port": two.port})
        async with irc_tendril(config), irc_member(two.port, "bob") as bob:
            async with irc_member(one.port, "alice") as alice:
                await alice.say(ROOM, "the key is under the mat")
                script.say("To alice.").say("To bob.").say("To bob again.")
                await alice.say(ROOM, ".terrarium where is the key?")
                await alice.expect(rf"PRIVMSG {ROOM} :alice: ~ To alice\.$")
                await bob.ask(".terrarium where is the key?", rf"PRIVMSG {ROOM} :bob: ~ To bob\.$")
                assert "under the mat" in str(script.requests[0])
                assert "under the mat" not in str(script.requests[1])
                await one.kill()
                await alice.wait_closed()
            await bob.ask(".terrarium and now?", rf"PRIVMSG {ROOM} :bob: ~ To bob again\.$")
    async with Database.open(log_path(config)) as database:
        events = await ChatLog(database).find(Query(scope=PUBLIC, types=SPOKEN))
    said = {(event.network, event.nick) for event in events}
    assert said == {("one", "alice"), ("one", "Terra"), ("two", "bob"), ("two", "Terra")}
