"""Keys of an agent server under test, made in its file while it runs."""

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

"""Seconds until the server must have seen a change, or a queue must have changed."""


@asynccontextmanager
async def key_table(data: Path) -> AsyncIterator[Keys]:
    """The keys of the server whose folder is `data`."""
    async with Database.open(server_path(data)) as database:
        yield Keys(database)


async def make_keys(http: httpx2.AsyncClient, data: Path, *keys: Key) -> dict[str, dict[str, str]]:
    """Make `keys`; returns by name the header of each, when the server at `http` knows them."""
    async with key_table(data) as table:
        made = {key.name: bearer(await table.create(key)) for key in keys}
    await until_status(http, 401, {})
    await until_status(http, 200, made[keys[-1].name])
    return made


def bearer(secret: str) -> dict[str, str]:
    """The header for `secret`."""
    return {"authorization": f"Bearer {secret}"}


async def until_status(http: httpx2.AsyncClient, status: int, headers: dict[str, str]) -> None:
    """Return when a request with `headers` is answered with `status`. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while (await http.get("/v1/models", headers=headers)).status_code != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def until_metric(http: httpx2.AsyncClient, line: str) -> None:
    """Return when /metrics has `line`. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while line not in (await http.get("/metrics")).text.splitlines():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
