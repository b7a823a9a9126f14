"""A web application on a free loopback port, in this event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from terrarium.sockets import listen


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an ASGI application in this event loop on a free loopback port; yields its address."""
    listener = listen("127.0.0.1", 0)
    server = _Server(
        uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    )
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if running.done():
                raise RuntimeError("the test server did not start")
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


class _Server(uvicorn.Server):
    """uvicorn that leaves the test process's signal handlers alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
