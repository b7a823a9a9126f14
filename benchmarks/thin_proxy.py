"""Minimal gateway as a baseline: FastAPI in front, aiohttp behind, bytes passed through.

Run as `python -m benchmarks.thin_proxy UPSTREAM`; prints its URL. It has no authentication,
validation or accounting.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
import uvloop
from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse

from terrarium.sockets import listen


def proxy(upstream: str) -> FastAPI:
    """Create the application that forwards chats to `upstream`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as app.state.http:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await request.body()
        http: aiohttp.ClientSession = request.app.state.http
        kind = {"content-type": "application/json"}
        answer = await http.post(f"{upstream}/v1/chat/completions", data=body, headers=kind)
        if answer.content_type != "text/event-stream":
            async with answer:
                return Response(await answer.read(), media_type="application/json")
        return StreamingResponse(answer.content.iter_any(), media_type="text/event-stream")

    return app


async def serve(upstream: str) -> None:
    """Print the URL and serve until the process is terminated."""
    listener = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(proxy(upstream), log_config=None, access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
