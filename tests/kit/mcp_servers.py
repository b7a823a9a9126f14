"""The MCP servers of the tendril irc, connected for a test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from llm.mcp.servers import McpServers
from llm.tools.toolbox import Toolbox
from terrarium.config import Config
from tests.kit.patience import PATIENCE


def configured(**servers: dict[str, Any]) -> Config:
    """Return a configuration with these servers, for the tendril irc if they name none."""
    tables = {name: {"tendrils": ["irc"], **each} for name, each in servers.items()}
    return Config({"mcp": {"servers": tables}}, None, Path("data"))


@asynccontextmanager
async def connected(**servers: dict[str, Any]) -> AsyncIterator[McpServers]:
    """Keep the servers connected, which are being connected at the beginning."""
    found = McpServers()
    found.configure("irc", configured(**servers))
    running = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def names(servers: McpServers) -> list[str]:
    """Return the names of the tools that are offered."""
    return [each.name for each in servers.tools()]


async def call(servers: McpServers, name: str, limit: float = PATIENCE, **given: Any) -> Any:
    """Call a tool as the model does; return the result."""
    return await Toolbox.from_owners(servers).call(name, json.dumps(given), limit)
