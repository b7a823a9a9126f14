"""A network as the tendril has it, on real servers."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harnesses.irc.protocol.errors import InvalidMessage
from harnesses.irc.transport.network import Network
from tests.kit.irc_client import irc_client, irc_member
from tests.kit.irc_network import Ears, joined, running
from tests.kit.ircd import SERVERS, Ircd, embedded_ircd, inspircd, ngircd
from tests.kit.patience import PATIENCE, until
from tests.kit.ports import free_port

ON_EACH_SERVER = pytest.mark.parametrize("server", SERVERS)


@ON_EACH_SERVER
async def test_bytes_of_any_encoding_and_cut_are_heard_as_text(server: str) -> None:
    ears = Ears()
    async with (
        SERVERS[server]() as ircd,
        joined(ircd.port, ears) as network,
        irc_member(ircd.port, "alice", "#c") as alice,
    ):
        await alice.send_raw(b"PRIVMSG #c :h\xc3")
        await alice.send_raw(
            b"\xa9llo\r\nPRIVMSG #c :h\xe9llo\r\nPRIVMSG #c :\x93caf\xe9\x94 \x81\r\n"
        )
        await alice.say("#c", "\x01ACTION  two  spaces\x01")
        await alice.send("NOTICE #c ::)")
        await alice.say(network.nick, "psst")
        await ears.heard("psst")
        assert ears.texts() == ["héllo", "héllo", "\x93café\x94 \x81", " two  spaces", ":)", "psst"]
        assert [e.type for e in ears.events][-3:] == ["ACTION", "NOTICE", "PRIVMSG"]
        private = ears.events[-1]
        assert (private.channel, private.target, private.nick) == (None, "Terra", "alice")


@ON_EACH_SERVER
async def test_who_comes_and_goes_is_known_and_told(server: str) -> None:
    ears = Ears()
    async with SERVERS[server]() as ircd, joined(ircd.port, ears, channels=("#c", "#d")) as network:
        async with irc_member(ircd.port, "alice", "#c") as alice:
            await alice.join("#d")
            await ears.until(lambda e: e.type == "JOIN" and e.channel == "#d" and not e.own)
            assert network.roster.nicks("#C") == ["alice", "Terra"]
            network.send_line("MODE #c +o alice")
            await ears.heard("+o alice")
            await alice.send("TOPIC #c :two  words")
            await ears.heard("two  words")
            await alice.send("NICK bob")
            await ears.heard("bob")
            await alice.send("PART #d :enough")
            await ears.heard("enough")
            assert network.roster.nicks("#d") == ["Terra"]
            await alice.send("QUIT :bye")
            gone = await ears.until(lambda e: e.type == "QUIT")
            assert gone.channel == "#c"
        assert network.roster.nicks("#c") == ["Terra"]
        told = [(e.type, e.channel, e.nick) for e in ears.events if not e.own]
        assert told == [
            ("JOIN", "#c", "alice"),
            ("JOIN", "#d", "alice"),
            ("TOPIC", "#c", "alice"),
            ("NICK", "#c", "alice"),
            ("NICK", "#d", "alice"),
            ("PART", "#d", "bob"),
            ("QUIT", "#c", "bob"),
        ]


LONG = " ".join(
    (
        "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich 👩‍🚀🇩🇪 " * 6,
        "漢字かな交じり文、" * 40,
        "for x in y: print(f'{x:>10}')  " * 20,
        "👩‍🚀🇩🇪👍🏽" * 50,
    )
)


@ON_EACH_SERVER
async def test_others_receive_every_line_whole(server: str) -> None:
    async with (
        SERVERS[server]() as ircd,
        joined(ircd.port, Ears(), lines_per_second=100_000) as network,
        irc_member(ircd.port, "alice", "#c") as alice,
    ):
        sent = await network.say("PRIVMSG", "#c", f"first\n\n{LONG}\r\n  last")
        acted = await network.say("ACTION", "#c", "x" * 500)
        await network.say("NOTICE", "alice", "end")
        await alice.expect("NOTICE alice :end")
        lines = [line.split(" :", 1)[1] for line in alice.lines if " PRIVMSG #c " in line]
        assert lines == [*sent, *(f"\x01ACTION {piece}\x01" for piece in acted)]
        assert (sent[0], sent[-1], "".join(acted)) == ("first", "  last", "x" * 500)
        assert "".join("".join(sent[1:-1]).split()) == "".join(LONG.split())
        assert max(map(len, alice.received)) == 510, "the space is used to the last byte"


async def test_with_server_time_the_events_have_the_servers_time_and_refusals_are_known() -> None:
    ears = Ears()
    async with (
        inspircd() as ircd,
        irc_member(ircd.port, "alice", "#c") as alice,
        joined(ircd.port, ears) as network,
    ):
        await alice.say("#c", "now")
        event = await ears.heard("now")
        assert abs(event.time - datetime.now(UTC)) < timedelta(minutes=1)
        assert event.time.microsecond % 1000 == 0, "from the tag, which has milliseconds"
        assert event.msgid
        assert await network.say("PRIVMSG", "#c", "one\ntwo") == ["one", "two"]
        await alice.send("MODE #c +m")
        await alice.settle()
        assert await network.say("PRIVMSG", "#c", "three") == []
        assert await network.say("ACTION", "alice", "waves") == ["waves"]


@pytest.mark.parametrize("server", ["inspircd", "ngircd"])
async def test_all_symbols_come_off_an_owners_name(server: str) -> None:
    async with SERVERS[server]() as ircd, irc_member(ircd.port, "owner", "#c") as owner:
        await owner.send("MODE #c +q owner" if server == "inspircd" else "MODE #c +h owner")
        await owner.expect(r"MODE #c \+")
        async with joined(ircd.port, Ears()) as network:
            assert network.roster.nicks("#c") == ["owner", "Terra"]


@ON_EACH_SERVER
async def test_with_two_nicks_taken_the_third_is_ours(server: str) -> None:
    async with (
        SERVERS[server]() as ircd,
        irc_client(ircd.port, "Terra"),
        irc_client(ircd.port, "Terra_"),
        joined(ircd.port, Ears()) as network,
    ):
        assert network.nick == "Terra__"


async def test_the_wanted_nick_is_ours_as_soon_as_it_is_free() -> None:
    ears = Ears()
    async with (
        inspircd() as ircd,
        irc_client(ircd.port, "Terra") as holder,
        joined(ircd.port, ears) as network,
    ):
        assert network.nick == "Terra_"
        await holder.send("QUIT :have it")  # in no channel of ours: MONITOR must tell
        await ears.until(lambda e: e.type == "NICK" and e.own)
        assert network.nick == "Terra"


PLUGIN = """
import irc3

@irc3.plugin
class Echo:
    requires = ["irc3.plugins.core", "irc3.plugins.userlist"]

    def __init__(self, bot):
        self.bot = bot
        self.log = []

    def server_ready(self):
        self.log.append("ready")

    @irc3.event(irc3.rfc.MY_PRIVMSG)
    def addressed(self, mask=None, target=None, data=None, **kwargs):
        nicks = " ".join(sorted(self.bot.channels["#c"]))
        self.bot.privmsg(target, f"{mask.nick} {self.bot.nick} {nicks} {self.log}: {data}")
"""


@pytest.mark.parametrize("nick", ["Terra", "[T]|x^"])
async def test_plugins_of_irc3_work_and_hear_our_nick_of_today(nick: str, tmp_path: Path) -> None:
    (tmp_path / "echo_plugin.py").write_text(PLUGIN)
    sys.path.insert(0, str(tmp_path))
    ears = Ears()
    try:
        async with (
            ngircd() as ircd,
            joined(ircd.port, ears, nick=nick, plugins=["echo_plugin"]) as network,
            irc_client(ircd.port, "alice") as alice,
        ):
            assert (asyncio.sleep, asyncio.wait) == (asyncio.tasks.sleep, asyncio.tasks.wait)
            assert logging.getLoggerClass() is logging.Logger, "irc3 does not change the process"
            await alice.join("#c")
            await alice.ask(f"{nick}: one", r"PRIVMSG #c :alice .* \['ready'\]: one", room="#c")
            network.send_line("NICK Gaia")
            await ears.heard("Gaia")
            assert network.nick == "Gaia"
            await alice.say("#c", f"{nick}: two")
            await alice.say("#c", "Gaia: three")
            match = await alice.expect(r"PRIVMSG #c :alice Gaia Gaia alice .*: (\w+)")
            assert match[1] == "three"
    finally:
        sys.path.remove(str(tmp_path))


def test_irc3_is_not_loaded_where_there_are_no_plugins() -> None:
    code = "import sys, harnesses.irc.tendril; sys.exit('irc3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", [inspircd, ngircd, embedded_ircd])
async def test_a_server_that_dies_is_found_again(kind: Any) -> None:
    port, ears = free_port(), Ears()
    async with running(port, ears) as network, asyncio.timeout(PATIENCE):
        fold = network.fold
        for _ in range(2):
            async with kind(port) as ircd:
                await network.all_joined.wait()
                assert fold("A[") == network.session.isupport.fold("A["), "of this connection"
                assert await network.say("PRIVMSG", "#c", "here") == ["here"]
                await _killed(ircd, network)
            assert network.roster.channels == []
            assert await network.say("PRIVMSG", "#c", "lost") == []


async def _killed(ircd: Ircd, network: Network) -> None:
    await ircd.kill()
    await until(lambda: not network.connected.is_set())


async def test_lines_that_did_not_go_out_are_not_returned() -> None:
    async with ngircd() as ircd, joined(ircd.port, Ears()) as network:
        async with irc_member(ircd.port, "alice", "#c") as alice:
            text = "\n".join(map(str, range(50)))
            talking = asyncio.create_task(network.say("PRIVMSG", "#c", text))
            await alice.expect("PRIVMSG #c :0")
            talking.cancel()  # a reply that is given up stops
            await asyncio.gather(talking, return_exceptions=True)
            await network.say("PRIVMSG", "#c", "something else")
            await alice.expect("something else")
            assert sum(" PRIVMSG #c :" in line for line in alice.lines) < 10
        talking = asyncio.create_task(network.say("PRIVMSG", "#c", text))
        await asyncio.sleep(0)
        await _killed(ircd, network)
        sent = await talking
        assert sent == [str(n) for n in range(len(sent))]
        assert len(sent) < 50


async def test_after_our_own_quit_there_is_no_return() -> None:
    before = signal.getsignal(signal.SIGINT)
    async with ngircd() as ircd, irc_member(ircd.port, "alice", "#c") as alice:
        async with asyncio.timeout(PATIENCE), joined(ircd.port, Ears()) as network:
            await alice.expect("JOIN")
        await alice.expect("QUIT .*the test is over")
        assert not network.connected.is_set()
        assert not network.all_joined.is_set()
    assert signal.getsignal(signal.SIGINT) is before


@ON_EACH_SERVER
async def test_events_come_in_the_order_of_the_wire(server: str) -> None:
    ears = Ears()
    async with (
        SERVERS[server]() as ircd,
        joined(ircd.port, ears),
        irc_member(ircd.port, "alice", "#c") as alice,
        irc_member(ircd.port, "bob", "#c") as bob,
    ):
        for number in range(150):
            await (alice, bob)[number % 2].say("#c", f"line {number}")
        await alice.settle()
        await bob.settle()
        await alice.say("#c", "the end")
        await ears.heard("the end")
        assert sorted(ears.texts()) == sorted([*(f"line {n}" for n in range(150)), "the end"])
        for nick in ("alice", "bob"):
            said = [e.text for e in ears.events if e.nick == nick and e.text.startswith("line")]
            assert said == sorted(said, key=lambda text: int(text.split()[1]))


@ON_EACH_SERVER
async def test_junk_and_long_lines_of_others_do_no_harm(server: str) -> None:
    ears = Ears()
    async with (
        SERVERS[server]() as ircd,
        joined(ircd.port, ears),
        irc_member(ircd.port, "alice", "#c") as alice,
        irc_member(ircd.port, "junk", "#c") as junk,
    ):
        junk_bytes = bytes(b for b in range(1, 256) if b not in b"\r\n") * 2
        await junk.say("#c", junk_bytes[:400])
        await junk.say("#c", b"\x01\x01")
        await junk.say("#c", b"\x01ACTION\x01")
        await junk.say("#c", b"{nick} %s {0.__class__}")
        await junk.send(b"PRIVMSG #c :" + "8 KB é ".encode() * 1000)
        await ears.heard("{nick} %s {0.__class__}")
        await alice.say("#c", "still there?")
        await ears.heard("still there?")


async def test_channels_are_joined_and_left_on_demand() -> None:
    ears = Ears()
    async with ngircd() as ircd, joined(ircd.port, ears) as network, asyncio.timeout(PATIENCE):
        network.join("#new")
        assert not network.all_joined.is_set()
        await network.all_joined.wait()
        assert network.roster.channels == ["#c", "#new"]
        network.part("#NEW", "moving on")
        await ears.until(lambda e: e.type == "PART")
        assert network.roster.channels == ["#c"]
        for odd in ("new", "#a,#b", "#a b", "#a\r\nQUIT"):
            with pytest.raises(InvalidMessage):
                network.join(odd)
        with pytest.raises(InvalidMessage):
            await network.say("PRIVMSG", "#c\r\nQUIT :", "x")
