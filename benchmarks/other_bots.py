"""Limnoria and Sopel with an echo command, each installed into its own virtual environment."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "terrarium-benchmarks"

_LIMNORIA = """\
supybot.nick: limnoria
supybot.ident: limnoria
supybot.networks: net
supybot.networks.net.servers: 127.0.0.1:{port}
supybot.networks.net.channels: {channel}
supybot.networks.net.ssl: False
supybot.reply.whenAddressedBy.chars: @
supybot.reply.withNickPrefix: False
supybot.protocols.irc.throttleTime: 0.0
supybot.abuse.flood.command: False
supybot.abuse.flood.command.invalid: False
supybot.plugins: Utilities
supybot.plugins.Utilities: True
supybot.plugins.Utilities.public: True
supybot.directories.conf: {folder}
supybot.directories.data: {folder}
supybot.directories.log: {folder}
"""

_SOPEL = """\
[core]
nick = sopel
host = 127.0.0.1
port = {port}
use_ssl = false
owner = nobody
channels = {channel}
prefix = !
homedir = {folder}
extra = {folder}
enable = echo
logdir = {folder}
flood_burst_lines = 100
"""

_SOPEL_ECHO = """\
from sopel import plugin

@plugin.command("echo")
def echo(bot, trigger):
    bot.say(trigger.group(2))
"""

# Sopel refuses to run as root, but many containers have no other user.
_SOPEL_START = """\
import os
os.getuid = os.geteuid = lambda: 1
from sopel.cli.run import main
main()
"""


@asynccontextmanager
async def limnoria(port: int, channel: str, folder: Path) -> AsyncIterator[str]:
    """Run Limnoria on the local IRC server at `port`; yield its echo command with prefix."""
    config = folder / "limnoria.conf"
    config.write_text(_LIMNORIA.format(port=port, channel=channel, folder=folder))
    program = await _installed("limnoria") / "limnoria"
    async with _running(folder, str(program), "--allow-root", str(config)):
        yield "@echo"


@asynccontextmanager
async def sopel(port: int, channel: str, folder: Path) -> AsyncIterator[str]:
    """Run Sopel on the local IRC server at `port`; yield its echo command with prefix.

    Its echo command is a minimal plugin.
    """
    (folder / "echo.py").write_text(_SOPEL_ECHO)
    config = folder / "sopel.cfg"
    config.write_text(_SOPEL.format(port=port, channel=channel, folder=folder))
    python = await _installed("sopel") / "python"
    async with _running(folder, str(python), "-c", _SOPEL_START, "start", "--config", str(config)):
        yield "!echo"


async def _installed(package: str) -> Path:
    """Return the folder with a package's executables; install it from PyPI on first use."""
    home = CACHE / package
    if not (home / "bin" / package).exists():
        await _run(sys.executable, "-m", "venv", str(home))
        await _run(str(home / "bin" / "python"), "-m", "pip", "install", "-q", package)
    return home / "bin"


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait():
        raise RuntimeError(f"{' '.join(command)} failed")


@asynccontextmanager
async def _running(folder: Path, *command: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=os.environ | {"HOME": str(folder)}, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
