"""Real IRC servers on free loopback ports, one per test."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harnesses.irc.ircd.server import Client, Server
from tests.kit.ports import free_port
from tests.kit.programs import installed, kill, running

NGIRCD = """\
[Global]
Name = ngircd.test
Info = Server of a test
Listen = 127.0.0.1
Ports = {port}
MotdPhrase = Hello
[Limits]
MaxNickLength = 31
MaxConnectionsIP = 0
MaxJoins = 0
MaxPenaltyTime = 0
[Options]
DNS = no
Ident = no
PAM = no
"""

INSPIRCD = """\
<server name="{name}" description="Server of a test" network="TestNet">
<admin name="t" nick="t" email="t@localhost">
<bind address="127.0.0.1" port="{port}" type="clients">
<pid file="{folder}/inspircd.pid">
<path datadir="{folder}" logdir="{folder}" runtimedir="{folder}">
<connect name="main" allow="*" timeout="60" pingfreq="120" hardsendq="1M" softsendq="64K"
 recvq="64K" threshold="1000" commandrate="1000" fakelag="no" localmax="100" globalmax="100"
 resolvehostnames="no" useident="no" maxchans="100">
<limits maxnick="30" maxtopic="400">
<performance softlimit="100">
<options prefixquit="" syntaxhints="no" defaultmodes="not">
<log method="file" type="*" level="default" target="{folder}/inspircd.log">
"""

INSPIRCD_MODULES = """
    cap ircv3 ircv3_accounttag ircv3_batch ircv3_capnotify ircv3_chghost ircv3_ctctags
    ircv3_echomessage ircv3_invitenotify ircv3_labeledresponse ircv3_msgid ircv3_servertime
    setname namesx uhnames monitor chanhistory botmode services_account sasl customprefix
"""

INSPIRCD_PREFIXES = """\
<sasl target="services.test">
<customprefix name="founder" letter="q" prefix="~" rank="50000" ranktoset="30000">
<customprefix name="halfop" letter="h" prefix="%" rank="20000" ranktoset="30000">
"""

OPERATORS = """\
<class name="all" commands="*" usermodes="*" chanmodes="*" privs="*" snomasks="*">
<type name="all" classes="all">
<oper name="root" password="root" host="*" type="all">
"""
"""Configuration that `IrcClient.become_operator` requires, for the `extra` of `inspircd`."""


@dataclass(frozen=True, slots=True)
class Ircd:
    """A running server; `kill` ends it like a crash and waits for its end."""

    host: str
    port: int
    kill: Callable[[], Awaitable[object]]


@asynccontextmanager
async def ngircd(port: int | None = None) -> AsyncIterator[Ircd]:
    """Run ngIRCd, the simplest supported server (its only capability is multi-prefix)."""
    program = installed("ngircd")

    def command(port: int, folder: Path) -> Sequence[str]:
        config = folder / "ngircd.conf"
        config.write_text(NGIRCD.format(port=port))
        return [program, "--nodaemon", "--config", str(config)]

    async with _serving(command, port) as server:
        yield server


@asynccontextmanager
async def inspircd(
    port: int | None = None, extra: str = "", name: str = "inspircd.test"
) -> AsyncIterator[Ircd]:
    """Run InspIRCd with the installed IRCv3 modules.

    It welcomes each client a second after it came: `ngircd` is faster where IRCv3 is not needed.
    `extra` precedes the rest of its configuration: InspIRCd uses the first matching connect class.
    """
    program = installed("inspircd")

    def command(port: int, folder: Path) -> Sequence[str]:
        config = folder / "inspircd.conf"
        folders = [Path("/usr/lib/inspircd/modules"), *Path("/usr/lib").glob("*/inspircd/modules")]
        present = {file.name for each in folders for file in each.glob("m_*.so")}
        modules = "".join(
            f'<module name="{module}">\n'
            for module in INSPIRCD_MODULES.split()
            if not present or f"m_{module}.so" in present
        )
        ours = INSPIRCD.format(name=name, port=port, folder=folder)
        config.write_text(extra + ours + modules + INSPIRCD_PREFIXES)
        root = ["--runasroot"] if os.geteuid() == 0 else []
        return [program, "--nofork", f"--config={config}", *root]

    async with _serving(command, port) as server:
        yield server


@asynccontextmanager
async def embedded_ircd(port: int | None = None, host: str = "127.0.0.1") -> AsyncIterator[Ircd]:
    """Run the IRC server that is part of `terrarium up`, in this event loop."""
    server, transports = Server(), list[asyncio.BaseTransport]()

    class Accepted(Client):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transports.append(transport)
            super().connection_made(transport)

    listener = await asyncio.get_running_loop().create_server(
        lambda: Accepted(server), host, port or 0
    )

    async def kill() -> None:
        listener.close()
        for transport in transports:
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
        await listener.wait_closed()

    try:
        yield Ircd(host, listener.sockets[0].getsockname()[1], kill)
    finally:
        await kill()


SERVERS: dict[str, Callable[[], AbstractAsyncContextManager[Ircd]]] = {
    "inspircd": inspircd,
    "ngircd": ngircd,
    "embedded": embedded_ircd,
}
"""All servers by name, for `pytest.mark.parametrize("server", SERVERS)`."""


@asynccontextmanager
async def _serving(
    command: Callable[[int, Path], Sequence[str]], port: int | None
) -> AsyncIterator[Ircd]:
    with tempfile.TemporaryDirectory(prefix="ircd-") as name:
        folder, port = Path(name), port or free_port()
        async with running(*command(port, folder), folder=folder, port=port) as process:
            yield Ircd("127.0.0.1", port, partial(kill, process))
