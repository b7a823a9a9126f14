"""The ASGI application of the web tendril: middleware, routers and error handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from harnesses.web.api import feeds
from harnesses.web.api import routes as api
from harnesses.web.app_state import AppState
from harnesses.web.auth.middleware import MAX_BODY_BYTES, SecurityMiddleware
from harnesses.web.caching import ETag, Only, may_compress
from harnesses.web.mcp.endpoint import PATH, McpEndpoint
from harnesses.web.pages import channel, chat, login, overview, runs, search, statistics
from harnesses.web.problems import register_handlers

_GZIP_LEVEL = 5  # half the time of the highest level for nearly the same size
_MIN_BYTES = 1000  # shorter bodies are not compressed
_STATIC = Path(__file__).parent / "static"
_ABOUT = """The log of the public channels: read it, search it, or follow it live.

Private conversations are never shown. Times are ISO 8601 with a time zone. An error is
`{"error": {"message", "type", "param"}}`, and its message says what to do.
"""
PAGES = tuple(
    part.router for part in (overview, channel, statistics, search, feeds, chat, login, runs)
)


def create_app(state: AppState) -> FastAPI:
    """Return the ASGI application over `state`, whose MCP endpoint runs in its lifespan."""
    mcp = McpEndpoint()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with mcp.running(state):
            yield

    app = FastAPI(
        title="Terrarium log",
        description=_ABOUT,
        version=version("terrarium"),
        docs_url=None,  # FastAPI's pages load scripts from a CDN, which our CSP forbids
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.app_state = state
    # The last one added is the outermost. CORS comes before the token check, because preflights
    # carry no token. The ETag is computed inside the compression, from the uncompressed body.
    # The limit is for bodies without a `Content-Length`; `SecurityMiddleware` refuses long others.
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=MAX_BODY_BYTES)
    app.add_middleware(ETag)
    compress = partial(GZipMiddleware, minimum_size=_MIN_BYTES, compresslevel=_GZIP_LEVEL)
    app.add_middleware(Only, middleware=compress, condition=may_compress)
    app.add_middleware(SecurityMiddleware, tokens=state.tokens, delays=state.delays)
    if origins := state.settings.cors_origins:
        # The API alone is open to scripts of these sites. They send a token in a header, and cannot
        # use the login of this browser, as credentialed requests are not allowed.
        cors = partial(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET"],
            allow_headers=["Authorization", "If-None-Match", "Last-Event-ID"],
            expose_headers=["ETag"],
        )
        app.add_middleware(
            Only, middleware=cors, condition=lambda scope: scope["path"].startswith("/api/")
        )
    register_handlers(app)
    # Only for the OpenAPI description; `SecurityMiddleware` checks the token.
    described = [Depends(HTTPBearer(auto_error=False))] if state.tokens.is_required else []
    app.include_router(api.router, dependencies=described)
    app.include_router(api.health)
    for router in PAGES:
        app.include_router(router)
    app.router.routes.append(Route(PATH, mcp))
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.add_api_route(
        "/favicon.ico",
        lambda: FileResponse(_STATIC / "icon.svg", media_type="image/svg+xml"),
        include_in_schema=False,
    )
    return app
