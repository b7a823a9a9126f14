"""Real XMPP server (Debian's prosody) with chat rooms, on a free loopback port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit.ports import free_port
from tests.kit.programs import installed, running

PASSWORD = "frogs and toads"

_CONFIG = """\
run_as_root = true
pidfile = "{folder}/prosody.pid"
data_path = "{folder}/data"
log = {{ info = "{folder}/prosody.log" }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
s2s_ports = {{ }}
http_ports = {{ }}
https_ports = {{ }}
component_ports = {{ }}
modules_enabled = {{ "roster", "saslauth", "disco", "ping" }}
modules_disabled = {{ "s2s", "tls" }}
authentication = "internal_plain"
c2s_require_encryption = false
VirtualHost "localhost"
Component "rooms.localhost" "muc"
    muc_room_locking = false
    muc_room_default_public_jids = {public_jids}
"""


@dataclass(frozen=True, slots=True)
class Prosody:
    """A running server: accounts are NAME@localhost with `PASSWORD`, rooms NAME@rooms.localhost."""

    host: str
    port: int


@asynccontextmanager
async def prosody(folder: Path, *accounts: str, public_jids: bool) -> AsyncIterator[Prosody]:
    """Run a server with these accounts; skip the test if prosody is not installed.

    Rooms show their occupants' addresses to everyone with `public_jids`, else to moderators only.
    """
    program, port = installed("prosody"), free_port()
    people = folder / "data" / "localhost" / "accounts"
    people.mkdir(parents=True)
    (folder / "certs").mkdir()
    for name in accounts:
        (people / f"{name}.dat").write_text(f'return {{ ["password"] = "{PASSWORD}" }};\n')
    config = folder / "prosody.cfg.lua"
    jids = str(public_jids).lower()
    config.write_text(_CONFIG.format(folder=folder, port=port, public_jids=jids))
    command = (program, "-F", "--config", str(config))
    async with running(*command, folder=folder, port=port):
        yield Prosody("127.0.0.1", port)
