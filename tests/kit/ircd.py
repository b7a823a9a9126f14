"""Real IRC servers on free loopback ports, one per test."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port

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
    """A running server."""

    host: str
    port: int
    process: asyncio.subprocess.Process

    async def kill(self) -> None:
        """Kill the server with SIGKILL, like a crash, and wait for its end."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def ngircd(port: int | None = None) -> AsyncIterator[Ircd]:
    """Run ngIRCd, the simplest supported server (its only capability is multi-prefix)."""
    program = installed("ngircd")

    def command(port: int, folder: Path) -> Sequence[str]:
        config = folder / "ngircd.conf"
        config.write_text(NGIRCD.format(port=port))
        return [program, "--nodaemon", "--config", str(config)]

    async with _running(command, port) as server:
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
        modules = "".join(f'<module name="{module}">\n' for module in _inspircd_modules())
        ours = INSPIRCD.format(name=name, port=port, folder=folder)
        config.write_text(extra + ours + modules + INSPIRCD_PREFIXES)
        root = ["--runasroot"] if os.geteuid() == 0 else []
        return [program, "--nofork", f"--config={config}", *root]

    async with _running(command, port) as server:
        yield server


@asynccontextmanager
async def embedded_ircd(port: int | None = None) -> AsyncIterator[Ircd]:
    """Run the IRC server that is part of `terrarium up`."""

    def command(port: int, folder: Path) -> Sequence[str]:
        module = [sys.executable, "-m", "harnesses.irc.ircd"]
        return [*module, "--host", "127.0.0.1", "--port", str(port)]

    async with _running(command, port) as server:
        yield server


SERVERS: dict[str, Callable[[], AbstractAsyncContextManager[Ircd]]] = {
    "inspircd": inspircd,
    "ngircd": ngircd,
    "embedded": embedded_ircd,
}
"""All servers by name, for `pytest.mark.parametrize("server", SERVERS)`."""


def installed(name: str) -> str:
    """Return the path of an installed program; skip the test if there is none."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt install {name})")
    return found


def _inspircd_modules() -> list[str]:
    folders = [Path("/usr/lib/inspircd/modules"), *Path("/usr/lib").glob("*/inspircd/modules")]
    present = {file.name for folder in folders for file in folder.glob("m_*.so")}
    return [name for name in INSPIRCD_MODULES.split() if not present or f"m_{name}.so" in present]


@asynccontextmanager
async def _running(
    command: Callable[[int, Path], Sequence[str]], port: int | None
) -> AsyncIterator[Ircd]:
    with tempfile.TemporaryDirectory(prefix="ircd-") as name:
        folder = Path(name)
        output = folder / "output"
        chosen = port or free_port()
        with output.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *command(chosen, folder), stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink
            )
        server = Ircd("127.0.0.1", chosen, process)
        try:
            await _accepting(server, output)
            yield server
        finally:
            await server.kill()


async def _accepting(server: Ircd, output: Path) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not await _accepts(server):
        late = asyncio.get_running_loop().time() > deadline
        if late or server.process.returncode is not None:
            raise AssertionError(f"the IRC server did not start: {_tail(output)}")
        await asyncio.sleep(0.02)  # polled: these programs do not signal that they are ready


async def _accepts(server: Ircd) -> bool:
    try:
        _, writer = await asyncio.open_connection(server.host, server.port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def _tail(output: Path) -> str:
    return output.read_text(errors="replace")[-2000:]
