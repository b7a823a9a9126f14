"""Web applications served on a free loopback port in the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.types import ASGIApp

from terrarium.http.serving import HttpLimits, serve
from terrarium.sockets import listen


@asynccontextmanager
async def serving(app: ASGIApp, limits: HttpLimits | None = None) -> AsyncIterator[str]:
    """Serve an ASGI application on a free loopback port; yield its base URL.

    Raises RuntimeError if it does not start.
    """
    listener, started = listen("127.0.0.1", 0), asyncio.Event()
    proxies = ["127.0.0.1"]  # a request can come from elsewhere by X-Forwarded-For
    running = asyncio.create_task(
        serve(app, listener, ready=started.set, limits=limits, proxies=proxies)
    )
    starting = asyncio.create_task(started.wait())
    try:
        await asyncio.wait({running, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not started.is_set():
            raise RuntimeError("the test server did not start")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for task in (running, starting):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await running
