"""Agent servers for tests, over real HTTP."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from agent_server.admission.admission import AdmissionPolicy
from agent_server.app import create_app
from terrarium.config import Config
from tests.kit.patience import PATIENCE
from tests.kit.serving import serving

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hello you"}]}  # three tokens with "ok"

CONTEXT = 1024
SLOTS = 2


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """A running engine: base URL (without `/v1`), bearer key and process."""

    url: str
    key: str
    process: subprocess.Popen[bytes]

    def settings(self) -> dict[str, Any]:
        """Return the table `[model]` for a server in front of this engine."""
        return {
            "upstream": self.url,
            "upstream_key": self.key,
            "tools": "constrained",
            "context": CONTEXT,
            "chooses_tools": False,
        }


def tool(name: str, *parameters: str) -> dict[str, Any]:
    """Return a tool of a chat request; its parameters are texts."""
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in parameters}}
    function = {"name": name, "description": f"does {name}", "parameters": schema}
    return {"type": "function", "function": function}


@asynccontextmanager
async def agent_server(
    model: Mapping[str, Any],
    server: Mapping[str, Any] | None = None,
    data: Path | None = None,
    policy: AdmissionPolicy | None = None,
    *,
    ready: bool = True,
    **others: Mapping[str, Any],
) -> AsyncIterator[str]:
    """Run an agent server in this event loop; yield its URL once `/ready` answers 200, or at once
    unless it is to be `ready`.

    `model`, `server` and `others` are tables of its configuration, `data` is its folder (by default
    a temporary one).
    """
    with TemporaryDirectory() as folder:
        # By default without the embedding model, which is a process: see `tests.kit.embedder`.
        tables = {"model": {"cache_dir": folder, **model}, "server": server or {}, **others}
        config = Config(tables, None, data or Path(folder))
        async with serving(create_app(config, policy)) as url:
            if ready:
                await until_ready(url)
            yield url


@asynccontextmanager
async def agent_client(*tables: Any, **others: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Run an agent server as `agent_server` does; yield an HTTP client of it."""
    async with (
        agent_server(*tables, **others) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE, verify=False) as http,
    ):
        yield http


async def until_ready(url: str, seconds: float = PATIENCE) -> None:
    """Wait until the server at `url` is ready. Raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds), httpx2.AsyncClient(timeout=PATIENCE, verify=False) as http:
        while (await http.get(f"{url}/ready")).status_code != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
