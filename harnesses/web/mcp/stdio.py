"""`terrarium mcp`: a stdio proxy to the MCP server of the running web tendril.

It is for MCP clients that start a command instead of connecting to a URL.
"""

from __future__ import annotations

import asyncio
import importlib.util
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx2
import typer

from harnesses.core.errors import TendrilError
from harnesses.core.tendril.status import ProcessState, read_report
from harnesses.web.mcp.endpoint import PATH
from harnesses.web.settings import WebSettings
from llm.mcp.servers import HOW_TO_INSTALL
from terrarium import __version__
from terrarium.command_line import ConfigFile, DataFolder
from terrarium.config import Config, load

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client
    from mcp.server.lowlevel.server import Server

_READ_TIMEOUT = 660.0  # seconds to wait for an answer: the tool `ask` may take 600
_CONNECT_TIMEOUT = 10.0  # seconds


def mcp(
    url: Annotated[
        str, typer.Option("--url", help="Address of the web tendril, if not this data folder's.")
    ] = "",
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Speak MCP on standard input and output, for desktop clients; the web tendril must run."""
    if importlib.util.find_spec("mcp") is None:
        raise TendrilError(f"this needs an extra: {HOW_TO_INSTALL}")
    asyncio.run(_serve(load(config, data), url))


async def _serve(config: Config, url: str) -> None:
    """Forward messages until standard input ends. Raises TendrilError."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.stdio import stdio_server

    base = url.rstrip("/")
    if not base:
        web = read_report(config.data, "web")
        if web is None or not web.is_fresh or web.state is not ProcessState.READY:
            raise TendrilError(
                f"no web tendril runs with the data folder {config.data}: start `terrarium up`, or"
                " name the folder with --data, or another machine's address with --url"
            )
        base = web.detail
    token = config.section(WebSettings).token
    headers = {"authorization": f"Bearer {token.get_secret_value()}"} if token else {}
    timeout = httpx2.Timeout(_READ_TIMEOUT, connect=_CONNECT_TIMEOUT)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout) as http:
        try:
            answer = await http.get(base + PATH)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = str(error) or type(error).__name__
            raise TendrilError(f"{base} cannot be reached: {why}") from error
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            raise TendrilError(f"{base} asks for a token: set WEB_TOKEN to one of that site")
        # A GET passes the token check and then gets 405 from `McpEndpoint`, or 501 without the SDK.
        if answer.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
            raise TendrilError(f"{base}{PATH} does not speak MCP: {answer.text[:300]}")
        async with Client(streamable_http_client(base + PATH, http_client=http)) as client:
            server = _forwarding_server(client)
            async with stdio_server() as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())


def _forwarding_server(client: Client) -> Server[Any]:
    """Return a server that forwards each request through `client`."""
    from mcp.server.lowlevel.server import Server

    def cursor(params: types.PaginatedRequestParams | None) -> str | None:
        return params.cursor if params else None

    return Server(
        "terrarium",
        version=__version__,
        instructions=client.instructions,
        on_list_tools=lambda _, params: client.list_tools(cursor=cursor(params)),
        on_call_tool=lambda context, params: client.call_tool(
            params.name, params.arguments, progress_callback=context.session.report_progress
        ),
        on_list_resources=lambda _, params: client.list_resources(cursor=cursor(params)),
        on_list_resource_templates=lambda _, params: client.list_resource_templates(
            cursor=cursor(params)
        ),
        on_read_resource=lambda _, params: client.read_resource(params.uri),
        on_list_prompts=lambda _, params: client.list_prompts(cursor=cursor(params)),
        on_get_prompt=lambda _, params: client.get_prompt(params.name, params.arguments),
        on_completion=lambda _, params: client.complete(
            params.ref,
            {"name": params.argument.name, "value": params.argument.value},
            params.context.arguments if params.context else None,
        ),
    )
