"""A proxy in front of an agent server that keeps what tendrils sent: the model's view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.kit.serving import serving


@dataclass(slots=True)
class Recorder:
    """`url` is the proxy's address; `prompts` are the messages of each chat request."""

    url: str = ""
    prompts: list[list[dict[str, Any]]] = field(default_factory=list)


@asynccontextmanager
async def recorder(target: str) -> AsyncIterator[Recorder]:
    """A proxy in front of the server at `target`, which need not run yet."""
    kept = Recorder()
    async with httpx2.AsyncClient(base_url=target, timeout=120) as http:

        async def passed_on(request: Request) -> StreamingResponse:
            if request.url.path == "/v1/chat/completions":
                kept.prompts.append((await request.json())["messages"])
            sent = http.build_request(
                request.method,
                request.url.path,
                content=await request.body(),
                headers={"content-type": "application/json"},
            )
            answer = await http.send(sent, stream=True)

            async def body() -> AsyncIterator[bytes]:
                async with aclosing(answer):
                    async for piece in answer.aiter_raw():
                        yield piece

            kind = answer.headers.get("content-type", "")
            return StreamingResponse(body(), answer.status_code, {"content-type": kind})

        route = Route("/{path:path}", passed_on, methods=["GET", "POST"])
        async with serving(Starlette(routes=[route])) as kept.url:
            yield kept
