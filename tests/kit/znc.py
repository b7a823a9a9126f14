"""ZNC, an IRC bouncer: stays connected while its user is away, and sends messages of its own."""

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
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port

_USER = "nobody"
_CONFIG = """\
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


@dataclass(frozen=True, slots=True)
class Znc:
    """A running bouncer; `password` is the argument of its user's PASS."""

    port: int
    process: asyncio.subprocess.Process
    password: str = "bot/net:sesame"

    @property
    def is_running(self) -> bool:
        """True while the process is running."""
        return self.process.returncode is None


@asynccontextmanager
async def znc(ircd_port: int) -> AsyncIterator[Znc]:
    """Run a bouncer; its only user, an administrator, is on the IRC server at a loopback port."""
    program, port = installed("znc"), free_port()
    with tempfile.TemporaryDirectory(prefix="znc-") as name:
        _configure(Path(name), _CONFIG.format(port=port, ircd_port=ircd_port))
        process = await asyncio.create_subprocess_exec(
            *(program, "--foreground", "--datadir", name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            user=_USER if os.geteuid() == 0 else None,  # as root, ZNC first waits 30 seconds
        )
        try:
            await accepting("ZNC", port, process)
            yield Znc(port, process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def _configure(folder: Path, text: str) -> None:
    """Write the configuration, readable by the user that ZNC runs as."""
    (folder / "configs").mkdir()
    (folder / "configs" / "znc.conf").write_text(text)
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, _USER)


async def accepting(name: str, port: int, process: asyncio.subprocess.Process) -> None:
    """Wait until a bouncer accepts connections. Raises AssertionError after PATIENCE seconds."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            late = asyncio.get_running_loop().time() > deadline
            if late or process.returncode is not None:
                raise AssertionError(f"{name} did not start") from None
            await asyncio.sleep(0.02)  # polled: bouncers do not signal that they are ready
        else:
            writer.close()
            await writer.wait_closed()
            return
