"""IRC bouncers, which stay connected while their user is away.

ZNC sends messages of its own; bip ignores CAP and plays its backlog without message tags.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit.ports import free_port
from tests.kit.programs import installed, running

_ZNC = """\
Version = 1.8.2
ConnectDelay = 1
ServerThrottle = 1
<Listener test>
  Host = 127.0.0.1
  Port = {port}
  IPv4 = true
  IPv6 = false
  SSL = false
  AllowIRC = true
  AllowWeb = false
</Listener>
<User bot>
  Admin = true
  Nick = Terra
  AltNick = Terra_
  Ident = terra
  RealName = Terra
  Pass = plain#sesame
  <Network net>
    FloodRate = 0
    Server = 127.0.0.1 {ircd_port}
  </Network>
</User>
"""

# The password is "sesame", by the tool bipmkpw.
_BIP = """\
ip = "127.0.0.1";
port = {port};
client_side_ssl = false;
log_root = "{folder}";
pid_file = "{folder}/bip.pid";
log_level = 3;
backlog = true;
backlog_lines = 0;
backlog_always = true;
blreset_on_talk = false;
network {{
  name = "net";
  server {{ host = "127.0.0.1"; port = {ircd_port}; }};
}};
user {{
  name = "bot";
  password = "4058d20675798c9c9be2662a0b14e49753d3b93c";
  default_nick = "Terra";
  default_user = "terra";
  default_realname = "Terra";
  connection {{
    name = "net";
    network = "net";
    channel {{ name = "#terrarium"; }};
  }};
}};
"""

_USER = "nobody" if os.geteuid() == 0 else None  # bip refuses to run as root, ZNC first waits 30 s


@dataclass(frozen=True, slots=True)
class Bouncer:
    """A running bouncer; `password` is the argument of its user's PASS."""

    port: int
    password: str
    process: Process


@asynccontextmanager
async def znc(ircd_port: int) -> AsyncIterator[Bouncer]:
    """Run ZNC; its only user, an administrator, is on the IRC server at a loopback port."""
    with tempfile.TemporaryDirectory(prefix="znc-") as folder:
        _, port = _configured(folder, "configs/znc.conf", _ZNC, ircd_port)
        command = (installed("znc"), "--foreground", "--datadir", folder)
        async with running(*command, folder=Path(folder), port=port, user=_USER) as process:
            yield Bouncer(port, "bot/net:sesame", process)


@asynccontextmanager
async def bip(ircd_port: int) -> AsyncIterator[Bouncer]:
    """Run bip; its only user is in #terrarium on the IRC server at a loopback port."""
    with tempfile.TemporaryDirectory(prefix="bip-") as folder:
        config, port = _configured(folder, "bip.conf", _BIP, ircd_port)
        command = (installed("bip"), "-n", "-f", config, "-s", folder)
        async with running(*command, folder=Path(folder), port=port, user=_USER) as process:
            yield Bouncer(port, "bot:sesame:net", process)


def _configured(folder: str, file: str, text: str, ircd_port: int) -> tuple[str, int]:
    """Write a configuration that the bouncer's user can read; return its path and port."""
    config, port = Path(folder, file), free_port()
    config.parent.mkdir(exist_ok=True)
    config.write_text(text.format(port=port, ircd_port=ircd_port, folder=folder))
    config.chmod(0o600)
    if _USER:
        for path in (Path(folder), config.parent, config):
            shutil.chown(path, _USER)
    return str(config), port
