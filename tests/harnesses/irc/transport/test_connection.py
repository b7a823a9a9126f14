"""A network before servers that behave as real ones do on their bad days."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from harnesses.irc.protocol.errors import IrcError
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import ReceiptStatus
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.network import Network
from tests.kit.certificates import certificate
from tests.kit.irc_network import Ears, running
from tests.kit.irc_script import listening
from tests.kit.ircd import ngircd
from tests.kit.patience import PATIENCE, until
from tests.kit.ports import free_port

SILENT = "127.0.0.2"
"""An address of this machine where nothing else listens."""


async def test_long_tags_and_endless_lines_are_survived() -> None:
    ears = Ears()
    async with listening() as server, running(server.port, ears):
        wire = await server.accept()
        await wire.welcome()
        tags = b"@x=" + b"y" * 8180 + b" "
        await wire.send(tags + b":a!u@h PRIVMSG #c :" + b"z" * 400 + b"\r\n")
        await wire.send(b":a!u@h PRIVMSG #c :" + b"w" * 300_000 + b"\r\n")
        await wire.send(b"\0\xff\xfe\r\n\r\n\n:\r\n@\r\n:x\r\nPRIVMSG\r\nJOIN\r\n353\r\nCAP\r\n")
        await wire.send(b":a!u@h PRIVMSG #c :end\r\n")
        await ears.heard("end")
        said = [e.text for e in ears.events if e.nick == "a"]
        assert [len(text) for text in said] == [400, 64 * 1024 - len(":a!u@h PRIVMSG #c :"), 3]


async def test_a_silent_server_is_asked_and_then_left() -> None:
    async with listening() as server, running(server.port, Ears(), silence=0.2) as network:
        wire = await server.accept()
        await wire.welcome()
        await network.all_joined.wait()
        await wire.until("PING :alive")
        await wire.send(b":s PONG s :alive\r\n")
        await wire.until("PING :alive")
        assert not (await wire.at_end()).strip()
        await (await server.accept()).welcome()
        await network.all_joined.wait()


class TwoAddresses(asyncio.SelectorEventLoop):
    """An event loop for which the name `two.test` has two addresses, first SILENT's."""

    async def getaddrinfo(self, host: Any, port: Any, **hints: Any) -> list[Any]:
        """Resolve `two.test` here, every other name as usual."""
        if host != "two.test":
            return await super().getaddrinfo(host, port, **hints)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
            for address in (SILENT, "127.0.0.1")
        ]


@contextmanager
def full_backlog(port: int) -> Iterator[None]:
    """Have connections to a port of SILENT neither accepted nor refused, as with broken IPv6."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((SILENT, port), backlog=0))
        listener.listen(0)
        is_full = False
        while not is_full:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.5)
            try:
                waiting.connect((SILENT, port))
            except TimeoutError:
                is_full = True
        yield


def test_a_server_whose_first_address_swallows_packets_is_reached_by_the_second() -> None:
    async def connect() -> None:
        async with listening() as server:
            with full_backlog(server.port):
                async with running(server.port, Ears(), server="two.test") as network:
                    await (await server.accept()).welcome()
                    await network.all_joined.wait()

    with asyncio.Runner(loop_factory=TwoAddresses) as runner:
        runner.run(connect())


async def test_waits_grow_while_nobody_listens() -> None:
    with capture_logs() as logs:
        async with running(free_port(), Ears()):
            await until(lambda: sum(log["event"] == "irc.reconnecting" for log in logs) >= 4)
    waits = [log["seconds"] for log in logs if log["event"] == "irc.reconnecting"]
    assert waits[:4] == sorted(waits[:4])
    assert waits[3] >= 0.4


@pytest.mark.parametrize("why", ["Trying to reconnect too fast.", "You are banned", "G-Lined"])
async def test_a_server_that_does_not_want_us_is_left_in_peace(why: str) -> None:
    with capture_logs() as logs:
        async with listening() as server, running(server.port, Ears()):
            wire = await server.accept()
            await wire.send(f"ERROR :Closing Link: {why}\r\n".encode())
            wire.close()
            await until(lambda: any(log["event"] == "irc.reconnecting" for log in logs))
            assert server.wires.empty()
    assert [log["seconds"] >= 60 for log in logs if log["event"] == "irc.reconnecting"] == [True]


async def test_a_kick_is_followed_by_a_return() -> None:
    ears = Ears()
    async with listening() as server, running(server.port, ears, rejoin_after=0.05) as network:
        wire = await server.accept()
        await wire.welcome()
        await network.all_joined.wait()
        await wire.send(b":op!o@h KICK #c Terra :out\r\n")
        await ears.until(lambda event: event.type == "KICK")
        assert not network.all_joined.is_set()
        await wire.until("JOIN #c")


async def test_lines_sent_just_before_leaving_get_their_receipts() -> None:
    async with (
        listening() as server,
        running(server.port, Ears(), lines_per_second=0.001) as network,
    ):
        wire = await server.accept()
        await wire.welcome()
        await network.all_joined.wait()
        network.send_line("WHO #c")  # so that the burst ends between a line and its PING
        sent = [network.send("#c", ("PRIVMSG", text))[0][0] for text in ("one", "two", "three")]
        network.close("bye")
        await wire.until("QUIT")
        pings = [line.removeprefix("PING ") for line in wire.lines if line.startswith("PING ")]
        assert wire.lines[-3:-1] == ["PRIVMSG #c :two", f"PING {pings[-1]}"]
        await wire.say(*(f":s PONG s {token}" for token in pings), "ERROR :Closing link")
        async with asyncio.timeout(PATIENCE):
            receipts = [(await line.outcome()).status for line in sent]
        said = ReceiptStatus.ACCEPTED
        assert receipts == [said, said, ReceiptStatus.LOST], "the last one was never written"


async def test_leaving_waits_for_no_server_that_never_answers_or_keeps_the_line() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):  # the queue is full: no more handshakes
            async with asyncio.timeout(PATIENCE), running(full.getsockname()[1], Ears()) as network:
                await asyncio.sleep(0)
                assert await network.say("PRIVMSG", "#c", "nobody hears") == []
    async with listening() as server:
        async with asyncio.timeout(PATIENCE), running(server.port, Ears()):
            wire = await server.accept()
            await wire.welcome()
        await wire.until("QUIT :the test is over")


async def test_a_network_ends_with_its_listener_or_when_cancelled_and_leaves_nothing_open() -> None:
    def broken(event: IrcEvent) -> None:
        raise ZeroDivisionError

    async with ngircd() as ircd, asyncio.timeout(PATIENCE):
        settings = NetworkSettings(server="127.0.0.1", port=ircd.port)
        with pytest.raises(ZeroDivisionError):
            await Network("net", settings).run(broken)
        network = Network("net", settings)
        run = asyncio.create_task(network.run(Ears()))
        await network.all_joined.wait()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert not network.connected.is_set()
    with pytest.raises(IrcError, match="libera has no server"):
        Network("libera", NetworkSettings())


@pytest.mark.parametrize("trusted_by", ["fingerprint", "authority"])
async def test_a_certificate_is_trusted_by_its_fingerprint_or_an_authority(
    trusted_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = certificate(tmp_path)
    trusted: dict[str, Any] = {"tls": True}
    if trusted_by == "fingerprint":
        trusted["tls_fingerprints"] = (good.fingerprint,)
    else:
        monkeypatch.setenv("SSL_CERT_FILE", str(good.path))
    async with listening(good.server()) as server, running(server.port, Ears(), **trusted):
        assert await (await server.accept()).line() == "CAP LS 302"


async def test_another_certificate_gets_not_a_byte(tmp_path: Path) -> None:
    keys = {"tls": True, "tls_fingerprints": (certificate(tmp_path, "good").fingerprint,)}
    bad = certificate(tmp_path, "bad").server()
    with capture_logs() as logs:
        async with listening(bad) as server, running(server.port, Ears(), **keys):
            assert await (await server.accept()).at_end() == b""
            await until(lambda: "is not trusted" in str(logs))


async def test_tls_works_and_a_false_certificate_is_refused(tmp_path: Path) -> None:
    ears = Ears()
    async with listening(certificate(tmp_path).server()) as server:
        async with running(server.port, ears, tls=True, tls_verify=False) as network:
            wire = await server.accept()
            await wire.welcome()
            await wire.send(":a!b@c PRIVMSG #c :gehört\r\n".encode())
            await ears.heard("gehört")
            wire.close()
        with capture_logs() as logs:
            async with running(server.port, ears, tls=True) as network:
                await until(lambda: logs)
                assert not network.connected.is_set()
        assert logs[0]["event"] == "irc.connect_failed"
        assert "set tls_fingerprints" in logs[0]["error"]
