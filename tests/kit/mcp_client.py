"""The official MCP client, connected to a test's web tendril."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.kit.patience import PATIENCE


@asynccontextmanager
async def mcp_client(url: str, token: str = "", mode: str = "auto") -> AsyncIterator[Client]:
    """Connect to `/mcp` of the site at `url`, with a bearer token if there is one."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE, verify=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def text(result: types.CallToolResult | types.ReadResourceResult) -> str:
    """Return the text of a result, its parts joined by newlines; other content is ignored."""
    if isinstance(result, types.ReadResourceResult):
        return "\n".join(
            each.text for each in result.contents if isinstance(each, types.TextResourceContents)
        )
    return "\n".join(each.text for each in result.content if isinstance(each, types.TextContent))


def value(result: types.CallToolResult) -> Any:
    """Return the structured result of a successful tool call; its text must be the same JSON."""
    assert not result.is_error, text(result)
    assert result.structured_content == json.loads(text(result))
    return result.structured_content
