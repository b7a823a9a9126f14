"""The embedded IRC server, by raw sockets and as clients use it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

from tests.kit.irc_client import IrcClient, irc_client, irc_member
from tests.kit.ircd import embedded_ircd
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port

COMMAND = [sys.executable, "-m", "harnesses.irc.ircd"]


async def test_a_client_like_irssi_finds_what_it_asks_for() -> None:
    async with embedded_ircd() as server, IrcClient(server.port, "irssi") as client:
        await client.send("CAP LS 302")
        await client.expect(r"^:terrarium.local CAP \* LS :$")
        await client.send("JOIN :")
        await client.expect(" 451 ")
        await client.send("CAP END")
        await client.send("NICK irssi")
        await client.send("USER irssi irssi 127.0.0.1 :Real Name")
        await client.expect(r" 001 irssi :Welcome to Terrarium irssi!irssi@127\.0\.0\.1$")
        await client.expect(r" 005 irssi .*CHANTYPES=#.*PREFIX=\(ov\)@\+.* :are supported")
        await client.expect(" 376 ")
        for line, answer in (
            ("MODE irssi +i", r":irssi!\S+ MODE irssi :?\+i"),
            ("JOIN #Terrarium", r":irssi!irssi@127\.0\.0\.1 JOIN :?#Terrarium"),
            ("PING :to ken", r"353 irssi = #Terrarium :@irssi"),
            ("MODE #terrarium", r"PONG terrarium.local :to ken"),
            ("MODE #terrarium b", r"324 irssi #Terrarium :?\+nt"),
            ("WHO #terrarium", "368 irssi #Terrarium"),
            (
                "TOPIC #terrarium :two  spaces",
                r"352 irssi #Terrarium irssi 127\S+ \S+ irssi H@ :0 R",
            ),
            ("TOPIC #terrarium", r":irssi!\S+ TOPIC #Terrarium :two  spaces"),
            ("LIST", "332 irssi #Terrarium :two  spaces"),
            ("WHOIS irssi irssi", "322 irssi #Terrarium 1 :two  spaces"),
            ("USERHOST irssi", "319 irssi irssi :?@#Terrarium"),
            ("ISON irssi nobody", r"302 irssi :?irssi=\+irssi@127"),
            ("NAMES #terrarium", "303 irssi :?irssi$"),
            ("AWAY :gone  out", "353 irssi = #Terrarium :@irssi"),
            ("BOGUS", "306 irssi"),
            ("QUIT :bye", "421 irssi BOGUS"),
        ):
            await client.send(line)
            await client.expect(answer)
        await client.expect("ERROR :Closing link")
        await client.wait_closed()


async def test_every_byte_arrives_as_it_was_sent() -> None:
    everything = bytes(b for b in range(1, 256) if b not in b"\r\n")
    texts = [
        everything,
        b"h\xc3\xa9llo",
        b"h\xe9llo",
        b"--x {0} {c.nick}  two  spaces ",
        b":)",
        b" ",
    ]
    async with (
        embedded_ircd() as server,
        irc_member(server.port, "alice", "#c") as alice,
        irc_member(server.port, "bob", "#c") as bob,
    ):
        for text in texts:
            await alice.say("#c", text)
            await alice.say("bob", text)
        await alice.settle()
        await bob.settle()
        heard = [line.split(b" :", 1)[1] for line in bob.received if b" PRIVMSG " in line]
        assert heard == [text for text in texts for _ in range(2)]


async def test_junk_and_long_lines_leave_the_server_standing() -> None:
    async with embedded_ircd() as server, irc_member(server.port, "bob", "#c") as bob:
        async with IrcClient(server.port, "junk") as junk:
            await junk.send_raw(os.urandom(4096).replace(b"\n", b"") + b"\r\n")
            await junk.send_raw(
                b"\0\0\r\n:\r\n@\r\nPRIVMSG\r\n:x\r\nUSER {} {0} :{c}\r\nNICK {c.nick}\r\n"
            )
            await junk.expect(" 432 ")
            await junk.register()
            await junk.send(b"JOIN #c," + b"x" * 9000)
            await junk.expect(" 403 ")
            await junk.send(b"PRIVMSG #c :" + "é".encode() * 5000)
            for odd in (
                "KICK #c nobody", "KICK #c bob", "KICK #none bob", "MODE #c +o nobody", "MODE",
                "MODE #c +xyz {0}", "TOPIC #none :x", "WHOIS", "WHO", "NAMES", "LIST #none", "JOIN",
                "PRIVMSG #c", "PRIVMSG nobody :x", "PRIVMSG", "PART #none", "INVITE", "OPER a --b",
                "HELP {0}", "CAP", "CAP REQ :sasl", "AWAY", "NICK :a b", "USER a b c d", "%s {} %d",
            ):  # fmt: skip
                await junk.send(odd)
            await junk.settle()
        long = await bob.expect("PRIVMSG #c :(é+)$")
        assert 508 <= len(long.string.encode()) <= 510
        await bob.expect("QUIT")
        await bob.settle()


async def test_operators_keep_order_and_others_do_not() -> None:
    async with (
        embedded_ircd() as server,
        irc_member(server.port, "op", "#c") as op,
        irc_member(server.port, "guest", "#c") as guest,
    ):
        await guest.send("KICK #c op")
        await guest.expect("482 guest #c")
        await guest.send("TOPIC #c :mine")
        await guest.expect("482 guest #c")
        await op.send("MODE #c +mv guest")
        await guest.expect(r"MODE #c \+m\+v :?guest")
        await op.send("MODE #c -v guest")
        await guest.ask("psst", "404 guest #c", room="#c")
        await op.send("KICK #c GUEST :be  good")
        await guest.expect(":op!\\S+ KICK #c guest :be  good")
        await guest.ask("from outside", "404 guest #c", room="#c")


async def test_a_nick_has_one_owner_and_is_free_when_they_leave() -> None:
    async with embedded_ircd() as server, irc_client(server.port, "Alice") as alice:
        async with IrcClient(server.port, "alice") as other:
            await other.send("NICK alice")
            await other.expect(r" 433 \* alice ")
            await alice.send("NICK bob")
            await alice.expect(":Alice!\\S+ NICK :?bob")
            await other.register()
            await other.send("NICK ALICE")
            await other.expect("NICK :?ALICE")
            await other.send("QUIT")
            await other.wait_closed()
        await alice.ask("still there?", "401 bob ALICE", room="ALICE")
        await alice.send("NICK Alice")
        await alice.expect(":bob!\\S+ NICK :?Alice")


async def test_a_web_page_cannot_speak_irc_for_its_reader() -> None:
    async with embedded_ircd() as server, IrcClient(server.port, "web") as web:
        await web.send_raw(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nNICK web\r\nUSER web 0 * :x\r\n")
        await web.wait_closed()
        assert not any(" 001 " in line for line in web.lines)


async def test_a_taken_port_is_named_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "--port", str(port), stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
    assert process.returncode == 78
    assert said.decode().count("\n") == 1
    for part in (str(port), "UP_IRC_PORT", "[up]", "irc_port"):
        assert part in said.decode()


async def test_it_ends_with_its_supervisor_and_on_sigterm() -> None:
    for how in ("stdin", "SIGTERM", "SIGINT"):
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "--port", str(port), stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "TERRARIUM_SUPERVISED": "1"},
        )  # fmt: skip
        await _until_open(port)
        async with irc_client(port, "alice") as alice:
            if how == "stdin":
                assert process.stdin
                process.stdin.close()
            else:
                process.send_signal(getattr(signal, how))
            await alice.expect("ERROR :Closing link: The server is stopping")
            output = await asyncio.wait_for(process.communicate(), 5)
        assert (process.returncode, output) == (0, (b"", b"")), how


async def _until_open(port: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)  # another process tells us in no other way
                continue
            writer.close()
            await writer.wait_closed()
            return


async def test_a_full_channel_shows_all_its_names() -> None:
    count = 60
    async with embedded_ircd() as server, asyncio.TaskGroup() as tasks:
        clients = [IrcClient(server.port, f"member{'x' * 20}{n}") for n in range(count)]

        async def enter(client: IrcClient) -> None:
            async with client:
                await client.register()
                await client.join("#c")
                entered.append(client)
                await everyone.wait()

        entered: list[IrcClient] = []
        everyone = asyncio.Event()
        running = [tasks.create_task(enter(client)) for client in clients]
        async with irc_client(server.port, "last") as last, asyncio.timeout(PATIENCE):
            while len(entered) < count:
                await last.settle()
            await last.join("#c")
            names = " ".join(line.split(" :", 1)[1] for line in last.lines if " 353 " in line)
            assert len(names.split()) == count + 1
        everyone.set()
        await asyncio.gather(*running)
