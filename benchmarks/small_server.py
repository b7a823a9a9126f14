"""An agent server with the small default model, started with `terrarium server`."""

from __future__ import annotations

import asyncio
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from storage.usage.api_keys import Key
from tests.kit.agent_server import until_ready
from tests.kit.command import begun
from tests.kit.ports import free_port
from tests.kit.server_keys import bearer, key_table

ENDLESS = {"2": -100}
"""A logit bias that bars the end-of-text token: answers are as long as `max_tokens` allows."""


@asynccontextmanager
async def small_server(
    *keys: Key,
    options: Sequence[str] = (),
    **settings: str,
) -> AsyncIterator[tuple[httpx2.AsyncClient, Mapping[str, dict[str, str]]]]:
    """Run a server with `keys`, `options` of `terrarium server`, and `settings` (environment).

    Yields an HTTP client for it, and each key's request headers by the key's name.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {"SERVER_PORT": str(port)} | settings
    words = ("--log-level", "warning", "server", *options, "--data", "data")
    with tempfile.TemporaryDirectory() as name:
        async with key_table(Path(name) / "data") as table:
            made = {key.name: bearer(await table.create(key)) for key in keys}
        async with (
            begun(*words, cwd=Path(name), **settings) as process,
            httpx2.AsyncClient(base_url=url, timeout=600) as http,
        ):
            await _listening(port, process)
            await until_ready(url, 600)
            yield http, made
            process.terminate()  # lets the server stop its own child processes
            await process.communicate()


async def _listening(port: int, process: Process) -> None:
    """Wait until the server listens. Raises RuntimeError with its stderr if it has exited."""
    while True:
        if process.returncode is not None:
            _, said = await process.communicate()
            raise RuntimeError(said.decode())
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
