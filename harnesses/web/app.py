"""The ASGI application of the web tendril: middleware, routers and error handlers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path

import structlog
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harnesses.web.api import feeds
from harnesses.web.api import routes as api
from harnesses.web.app_state import AppState
from harnesses.web.auth.middleware import (
    MAX_BODY_BYTES,
    TOO_LONG,
    SecurityMiddleware,
    add_security_headers,
    ask_to_log_in,
    refuse,
)
from harnesses.web.mcp.endpoint import PATH, McpEndpoint
from harnesses.web.pages import (
    channel,
    chat,
    jobs,
    login,
    memory,
    operation,
    overview,
    runs,
    search,
    setup,
    statistics,
)
from storage.db.errors import BadCursor, ServerAway
from terrarium import __version__

_GZIP_LEVEL = 5  # half the time of the highest level for nearly the same size
_MIN_BYTES = 1000  # shorter bodies are not compressed
_SOON = {"Retry-After": "5"}  # seconds
_log = structlog.get_logger()
_STATIC = Path(__file__).parent / "static"
_ABOUT = """The log of the public channels: read it, search it, or follow it live.

Private conversations are never shown. Times are ISO 8601 with a time zone. An error is
`{"error": {"message", "type", "param"}}`, and its message says what to do.
"""
# The headers of the 200 that a 304 repeats (RFC 9110, section 15.4.5), and Set-Cookie, which takes
# effect with any status.
_HEADERS_OF_304 = {b"cache-control", b"etag", b"expires", b"set-cookie", b"vary"}
_ADVICE = {
    404: "There is no such page. The channels are at /, the API is described at /api and, for"
    " programs, at /openapi.json.",
    405: "This address does not accept this method; the API is described at /api.",
    413: TOO_LONG,
}
_SITE = (
    *(overview, channel, statistics, search, feeds, chat, jobs, memory),
    *(login, runs, operation, setup),
)
PAGES = tuple(part.router for part in _SITE)


def create_app(state: AppState) -> FastAPI:
    """Return the ASGI application over `state`, whose MCP endpoint runs in its lifespan."""
    mcp = McpEndpoint()
    app = FastAPI(
        title="Terrarium log",
        description=_ABOUT,
        version=__version__,
        docs_url=None,  # FastAPI's pages load scripts from a CDN, which our CSP forbids
        redoc_url=None,
        lifespan=lambda _app: mcp.running(state),
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
    for kind in (HTTPException, RequestValidationError, BadCursor, ServerAway, Exception):
        app.add_exception_handler(kind, _answer_error)
    # `include_router` makes all routes anew, while the first request waits: only where they differ.
    routers = [api.health, *PAGES]
    if state.tokens.is_required:
        # Only for the OpenAPI description; `SecurityMiddleware` checks the token.
        app.include_router(api.router, dependencies=[Depends(HTTPBearer(auto_error=False))])
    else:
        routers.insert(0, api.router)
    for router in routers:
        app.router.routes += router.routes
    app.router.routes.append(Route(PATH, mcp))
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.add_api_route(
        "/favicon.ico",
        lambda: FileResponse(_STATIC / "icon.svg", media_type="image/svg+xml"),
        include_in_schema=False,
    )
    return app


class Only:
    """ASGI middleware that applies another `middleware` to HTTP requests that meet a condition."""

    def __init__(
        self,
        app: ASGIApp,
        middleware: Callable[[ASGIApp], ASGIApp],
        condition: Callable[[Scope], bool],
    ) -> None:
        self._app = app
        self._inside = middleware(app)
        self._condition = condition

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the middleware, or around it."""
        applies = scope["type"] == "http" and self._condition(scope)
        await (self._inside if applies else self._app)(scope, receive, send)


def may_compress(scope: Scope) -> bool:
    """Return whether the response to a request may be compressed.

    Not if another site caused it, as `Sec-Fetch-Site` tells: the length of a compressed page tells
    whether a word of its address also occurs in its text, so an attacker who causes requests and
    observes the traffic could guess at the log (BREACH).
    """
    # POST /chat streams its answer in small pieces. Server-sent events, which are fetched by GET,
    # are left out by `GZipMiddleware` itself.
    from_site = Headers(scope=scope).get("sec-fetch-site", "none")
    return scope["method"] == "GET" and from_site in ("none", "same-origin")


class ETag:
    """ASGI middleware that tags every complete response to a GET, and sends 304 to a client that
    has it already (RFC 9110, sections 8.8.3 and 13.1.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tag the response, unless it is streamed or has a tag already."""
        if scope["type"] != "http" or scope["method"] != "GET":  # HEAD comes as GET
            await self._app(scope, receive, send)
            return
        # As weak tags, as which they are compared (RFC 9110, section 8.8.3.2).
        known = [
            f"W/{tag.strip().removeprefix('W/')}"
            for tag in Headers(scope=scope).get("if-none-match", "").split(",")
        ]
        start: Message | None = None

        async def send_tagged(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                is_whole = message["status"] == 200 and "content-length" in headers
                if is_whole and "etag" not in headers:
                    start = message  # held back until the body, which decides on tag and status
                    return
            held, start = start, None
            if held is None:
                await send(message)
                return
            if not message.get("more_body"):  # a tag needs the whole body, which may be endless
                # Weak: the same tag serves the compressed body, which differs in its bytes.
                tag = f'W/"{sha256(message.get("body", b"")).hexdigest()[:32]}"'
                MutableHeaders(scope=held)["ETag"] = tag
                if tag in known or known == ["W/*"]:
                    kept = [each for each in held["headers"] if each[0].lower() in _HEADERS_OF_304]
                    held = {**held, "status": 304, "headers": kept}
                    message = {"type": "http.response.body", "body": b""}
            await send(held)
            await send(message)

        await self._app(scope, receive, send_tagged)


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer with an HTML page for browsers, with JSON for all other clients."""
    path, param, headers = request.scope["path"], None, {}
    match error:
        case HTTPException(status_code=HTTPStatus.UNAUTHORIZED):
            return ask_to_log_in(request)
        case HTTPException():
            status, kind, message = HTTPStatus(error.status_code), "", str(error.detail)
            headers = dict(error.headers or {})
            if message in (status.phrase, "Content Too Large"):  # Starlette's default, not our text
                message = _ADVICE.get(status, message)
        case BadCursor():
            status, kind, param = HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", "cursor"
            message = f"cursor: {error}"
        case RequestValidationError():
            status, kind = HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request"
            problems = {}
            for each in error.errors():
                text = str(each["msg"]).removeprefix("Value error, ")
                if str(each["type"]).startswith("date"):  # pydantic describes its parser
                    text = "write a day as 2026-03-01"
                if each["type"] == "timezone_aware":
                    text += ", for example a Z at the end"
                problems[".".join(map(str, each["loc"][1:])) or "request body"] = text
            message = "; ".join(f"{name}: {text}" for name, text in problems.items())
            param = next(iter(problems))
        case ServerAway():
            _log.warning("web.unavailable", path=path, error=str(error))
            status, kind = HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"
            message, headers = "The log cannot be read now; try again in a moment.", _SOON
        case _:
            _log.error("web.request_failed", path=path, error=type(error).__name__)
            status, kind = HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error"
            message = (
                "An internal error occurred; the web tendril has logged the details. Try again."
            )
    response = refuse(request, status, message, headers, kind=kind, param=param)
    if kind == "internal_error":
        # Starlette handles it outside all middleware, so `SecurityMiddleware` does not see this.
        add_security_headers(response.headers)
    return response
