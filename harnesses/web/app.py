"""The ASGI application of the web tendril: middleware, routers and error handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from starlette.responses import FileResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from harnesses.web.api import feeds
from harnesses.web.api import routes as api
from harnesses.web.app_state import AppState
from harnesses.web.auth.middleware import SecurityMiddleware
from harnesses.web.auth.tokens import AccessTokens
from harnesses.web.http.body_limit import BodySizeLimit
from harnesses.web.http.compression import Compression
from harnesses.web.http.cors import Cors
from harnesses.web.http.etag import ETag
from harnesses.web.http.problems import register_handlers
from harnesses.web.mcp.endpoint import PATH, McpEndpoint
from harnesses.web.pages import (
    channel,
    chat,
    login,
    overview,
    paste,
    preferences,
    runs,
    search,
    statistics,
)

MAX_BODY_BYTES = chat.MAX_IMAGE_CHARS + 64 * 1024
"""The most bytes of a request body: the longest is a chat question with an image."""

_STATIC = Path(__file__).parent / "static"
_ABOUT = """The log of the public channels: read it, search it, or follow it live.

Private conversations are never shown. Times are ISO 8601 with a time zone. An error is
`{"error": {"message", "type", "param"}}`, and its message says what to do.
"""
PAGES = tuple(
    part.router
    for part in (
        overview,
        channel,
        statistics,
        search,
        feeds,
        chat,
        login,
        preferences,
        paste,
        runs,
    )
)


def create_app(state: AppState) -> FastAPI:
    """Return the ASGI application over `state`, whose MCP endpoint runs in its lifespan."""
    tokens = AccessTokens(state.settings, state.web_logins)
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
    app.add_middleware(BodySizeLimit, max_bytes=MAX_BODY_BYTES)
    app.add_middleware(ETag)
    app.add_middleware(Compression)
    app.add_middleware(SecurityMiddleware, tokens=tokens, logins=state.logins)
    if state.settings.cors_origins:
        app.add_middleware(Cors, origins=state.settings.cors_origins)
    register_handlers(app)
    # Only for the OpenAPI description; `SecurityMiddleware` checks the token.
    described = [Depends(HTTPBearer(auto_error=False))] if tokens.is_required else []
    app.include_router(api.router, dependencies=described)
    app.include_router(api.health)
    for router in PAGES:
        app.include_router(router)
    app.router.routes.append(Route(PATH, mcp))
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.add_api_route("/favicon.ico", _icon, include_in_schema=False)
    return app


async def _icon() -> FileResponse:
    return FileResponse(_STATIC / "icon.svg", media_type="image/svg+xml")
