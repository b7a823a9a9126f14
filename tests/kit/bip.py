"""bip, an IRC bouncer that ignores CAP and plays its backlog without message tags."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit.ircd import installed
from tests.kit.ports import free_port
from tests.kit.znc import accepting

_USER = "nobody"
_CONFIG = """\
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
  password = "{digest}";
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
_PASSWORD = "sesame"
_DIGEST = "4058d20675798c9c9be2662a0b14e49753d3b93c"  # of the password, by the tool bipmkpw


@dataclass(frozen=True, slots=True)
class Bip:
    """A running bouncer; `password` is the argument of its user's PASS."""

    port: int
    process: asyncio.subprocess.Process
    password: str = f"bot:{_PASSWORD}:net"


@asynccontextmanager
async def bip(ircd_port: int) -> AsyncIterator[Bip]:
    """Run a bouncer; its only user is in #terrarium on the IRC server at a loopback port."""
    program, port = installed("bip"), free_port()
    with tempfile.TemporaryDirectory(prefix="bip-") as name:
        config = Path(name) / "bip.conf"
        config.write_text(
            _CONFIG.format(port=port, ircd_port=ircd_port, folder=name, digest=_DIGEST)
        )
        config.chmod(0o600)
        if os.geteuid() == 0:
            for path in (Path(name), config):
                shutil.chown(path, _USER)
        process = await asyncio.create_subprocess_exec(
            *(program, "-n", "-f", str(config), "-s", name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            user=_USER if os.geteuid() == 0 else None,  # bip refuses to run as root
        )
        try:
            await accepting("bip", port, process)
            yield Bip(port, process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
