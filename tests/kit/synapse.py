"""Real Matrix server (Synapse, of the extra `dev`) on a free loopback port."""

from __future__ import annotations

import base64
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest

from tests.kit.ports import free_port
from tests.kit.programs import running

_CONFIG = """\
server_name: localhost
pid_file: {folder}/homeserver.pid
listeners:
  - {{port: {port}, type: http, bind_addresses: [127.0.0.1], resources: [{{names: [client]}}]}}
database: {{name: sqlite3, args: {{database: {folder}/homeserver.db}}}}
media_store_path: {folder}/media
signing_key_path: {folder}/signing.key
macaroon_secret_key: secret
form_secret: secret
enable_registration: true
enable_registration_without_verification: true
bcrypt_rounds: 4
report_stats: false
trusted_key_servers: []
rc_message: {free}
rc_registration: {free}
rc_joins: {{local: {free}, remote: {free}}}
rc_invites: {{per_room: {free}, per_user: {free}, per_issuer: {free}}}
"""
_FREE = "{per_second: 1000, burst_count: 1000}"


@dataclass(frozen=True, slots=True)
class Synapse:
    """A running server, whose name is "localhost"; `url` is that of its API."""

    url: str

    async def register(self, name: str) -> str:
        """Make the account @NAME:localhost; return an access token of it."""
        body = {"username": name, "password": name, "auth": {"type": "m.login.dummy"}}
        async with httpx2.AsyncClient() as http:
            answer = await http.post(f"{self.url}/_matrix/client/v3/register", json=body)
        token: str = answer.raise_for_status().json()["access_token"]
        return token


@asynccontextmanager
async def synapse(folder: Path) -> AsyncIterator[Synapse]:
    """Run a server on which anybody may make an account, without limits of rates; skip the test if
    Synapse is not installed."""
    if find_spec("synapse") is None:
        pytest.skip("Synapse is not installed (pip install matrix-synapse)")
    port, config = free_port(), folder / "homeserver.yaml"
    config.write_text(_CONFIG.format(folder=folder, port=port, free=_FREE))
    key = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    (folder / "signing.key").write_text(f"ed25519 a_test {key}\n")
    command = (sys.executable, "-m", "synapse.app.homeserver", "--config-path", str(config))
    async with running(*command, folder=folder, port=port):
        yield Synapse(f"http://127.0.0.1:{port}")
