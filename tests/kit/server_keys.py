"""API keys of an agent server under test, created in its database while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from storage.db.database import Database
from storage.usage.api_keys import Key, Keys
from tests.kit.data_files import server_path
from tests.kit.patience import PATIENCE


@asynccontextmanager
async def key_table(data: Path) -> AsyncIterator[Keys]:
    """Open the key table of the server with the data folder `data`."""
    async with Database.open(server_path(data)) as database:
        yield Keys(database)


async def make_keys(http: httpx2.AsyncClient, data: Path, *keys: Key) -> dict[str, dict[str, str]]:
    """Create keys and wait until the server accepts them; return the headers by key name."""
    async with key_table(data) as table:
        made = {key.name: bearer(await table.create(key)) for key in keys}
    # A server without keys accepts every request; with the first key, anonymous ones get 401.
    await until_status(http, 401, {})
    await until_status(http, 200, made[keys[-1].name])
    return made


def bearer(secret: str) -> dict[str, str]:
    """Return the Authorization header for a secret."""
    return {"authorization": f"Bearer {secret}"}


async def until_status(http: httpx2.AsyncClient, status: int, headers: dict[str, str]) -> None:
    """Wait until a request with `headers` is answered with `status`. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while (await http.get("/v1/models", headers=headers)).status_code != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def until_metric(http: httpx2.AsyncClient, line: str) -> None:
    """Wait until `/metrics` has `line`. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while line not in (await http.get("/metrics")).text.splitlines():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
