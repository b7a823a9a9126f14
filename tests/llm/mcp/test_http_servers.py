"""MCP servers at an address: our own, one that comes back, and those that would do harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from llm.tools.toolbox import Toolbox
from tests.kit.mcp_servers import call, connected, names
from tests.kit.patience import PATIENCE, until
from tests.kit.serving import serving
from tests.kit.web_site import event, web_site

Answerer = Callable[[dict[str, Any]], Response | None]


def server(called: Answerer) -> Starlette:
    """A server with one tool, `echo`, whose calls are answered by `called`."""

    async def answer(request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        if message["method"] == "tools/call" and (own := called(message)) is not None:
            return own
        schema = {"name": "echo", "inputSchema": {"type": "object"}}
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "test", "version": "1"},
            },
            "tools/list": {"tools": [schema]},
            "tools/call": {"content": [{"type": "text", "text": "echoed"}]},
        }
        known = results.get(message["method"])
        error = {"error": {"code": -32601, "message": "no such method"}}
        body = {"jsonrpc": "2.0", "id": message["id"]}
        return JSONResponse(body | (error if known is None else {"result": known}))

    methods = ["GET", "POST", "DELETE"]
    return Starlette(routes=[Route("/mcp", answer, methods=methods)])


async def test_our_own_server_is_used_as_a_foreign_one(tmp_path: Path) -> None:
    settings = {"token": "whole-token"}
    async with (
        web_site(tmp_path, events=[event("the frogs are awake")], settings=settings) as site,
        connected(
            log={"url": f"{site.url}/mcp", "token": "whole-token", "reads": ["*_log"]},
            shut={"url": f"{site.url}/mcp", "token": "wrong-token"},
        ) as servers,
    ):
        await until(lambda: names(servers))
        result = await call(servers, "log__search_log", query="frogs")
        assert result.ok
        assert "the frogs are awake" in result.text
        assert not [each for each in names(servers) if each.startswith("shut")]


async def test_a_huge_answer_is_an_error_and_the_next_call_works() -> None:
    huge = [True]

    def answer(_: dict[str, Any]) -> Response | None:
        return Response(b"x" * 10 * 2**20, media_type="application/json") if huge.pop() else None

    huge.insert(0, False)
    async with serving(server(answer)) as url, connected(demo={"url": f"{url}/mcp"}) as servers:
        await until(lambda: names(servers))
        result = await call(servers, "demo__echo")
        assert not result.ok
        assert len(result.text) < 1000
        await until(lambda: names(servers))
        assert "echoed" in (await call(servers, "demo__echo")).text


async def test_an_endless_event_is_cut_off() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"data: "
        while True:
            yield b"x" * 2**20
            await asyncio.sleep(0)

    def answer(_: dict[str, Any]) -> Response:
        return StreamingResponse(endless(), media_type="text/event-stream")

    async with serving(server(answer)) as url, connected(demo={"url": f"{url}/mcp"}) as servers:
        await until(lambda: names(servers))
        assert not (await call(servers, "demo__echo")).ok


async def test_a_redirect_elsewhere_is_not_followed() -> None:
    seen: list[str] = []

    async def catch(request: Request) -> Response:
        seen.append(request.headers.get("authorization", ""))
        return Response()

    elsewhere = Starlette(routes=[Route("/{path:path}", catch, methods=["GET", "POST"])])
    async with serving(elsewhere) as target:

        def answer(_: dict[str, Any]) -> Response:
            return RedirectResponse(f"{target}/mcp", 307)

        async with (
            serving(server(answer)) as url,
            connected(demo={"url": f"{url}/mcp", "token": "its-own"}) as servers,
        ):
            await until(lambda: names(servers))
            assert not (await call(servers, "demo__echo")).ok
    assert seen == []


async def test_one_that_goes_away_fails_the_call_at_once() -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(server(lambda _: None)))
        async with connected(demo={"url": f"{url}/mcp"}) as servers:
            await until(lambda: names(servers))
            tools = Toolbox(servers.tools())
            await stack.aclose()
            result = await tools.call("demo__echo", "{}", PATIENCE)
            assert not result.ok
            assert "no result within" not in result.text
