"""Access control for the whole site, and the security headers of its responses."""

from __future__ import annotations

import math
from http import HTTPStatus
from urllib.parse import quote, urlencode

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harnesses.web.auth.tokens import AccessTokens, LoginDelays, address_of, is_feed
from harnesses.web.rendering.view import page
from llm.messages.message import MAX_IMAGE_SIZE
from storage.db.errors import Unavailable
from terrarium.loopback import host_of, is_loopback

log = structlog.get_logger()

_OPEN_PATHS = ("/health", "/login", "/favicon.ico", "/setup")
_CAPABILITY_PREFIX = "/paste/"  # capability URLs: knowing the unguessable address is the permission
MAX_IMAGE_CHARS = -(-MAX_IMAGE_SIZE // 3) * 4  # characters of base64, padding included
MAX_BODY_BYTES = MAX_IMAGE_CHARS + 64 * 1024
"""The most bytes of a request body: the longest is a chat question with an image."""
TOO_LONG = f"The request is longer than {MAX_BODY_BYTES} bytes; send a shorter text or image."
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # no-referrer would make browsers send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
}
INDEXABLE = "indexable"  # the key of `request.state` by which a page admits search engines


class SecurityMiddleware:
    """ASGI middleware that checks Host, Origin, length and token, and stores the `Viewer` in
    `request.state`; it adds `HEADERS` to each response."""

    def __init__(self, app: ASGIApp, tokens: AccessTokens, delays: LoginDelays) -> None:
        self._app, self._tokens, self._delays = app, tokens, delays

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on; HEAD is passed on as GET."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        state: dict[str, object] = scope.setdefault("state", {})

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_indexable = bool(state.get(INDEXABLE))
                add_security_headers(MutableHeaders(scope=message), is_indexable=is_indexable)
            await send(message)

        request = Request(scope)
        try:
            refusal = await self._refusal(request)
        except Unavailable as error:  # the database of the logins
            log.warning("web.logins_unavailable", error=str(error))
            refusal = refuse(
                request,
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Logins cannot be read or stored now; try again soon.",
            )
        if scope["method"] == "HEAD":  # FastAPI's routes know only GET; uvicorn omits the body
            scope = {**scope, "method": "GET"}
        await (refusal or self._app)(scope, receive, with_headers)

    async def _refusal(self, request: Request) -> Response | None:
        """Return a response instead of passing the request on, else None, with its viewer set."""
        if request.scope["path"].startswith(_CAPABILITY_PREFIX) and request.method in _SAFE_METHODS:
            return None
        # DNS rebinding: if another site's name resolves to 127.0.0.1, this site has the same origin
        # for a browser, so scripts of the other one could read everything that needs no token.
        if not self._tokens.is_required and not is_loopback(
            host_of(request.headers.get("host", ""))
        ):
            return refuse(
                request,
                HTTPStatus.FORBIDDEN,
                "Without a token this site answers only to loopback names such as localhost;"
                " to use another name, set WEB_TOKEN.",
            )
        headers = request.headers
        if request.method not in _SAFE_METHODS:
            # The protection against CSRF: headers must not show that a browser sent the request
            # from another site. Programs send neither `Origin` nor `Sec-Fetch-Site`.
            if (origin := headers.get("origin")) is None:
                is_ours = headers.get("sec-fetch-site", "none") in ("same-origin", "none")
            else:
                scheme, _, host = origin.partition("://")
                is_same = host.lower() == headers.get("host", "").lower()
                is_ours = is_same and scheme in ("http", "https")
            if not is_ours:
                return refuse(
                    request, HTTPStatus.FORBIDDEN, "This must be sent from a page of this site."
                )
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
            return refuse(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_LONG)
        # Not `request.url.path`: the scope's path is decoded, and its # would begin a fragment, so
        # "/health%23" would pass as "/health".
        path = request.scope["path"]
        if path in _OPEN_PATHS or path.startswith("/static/"):
            return None
        for token in self._tokens.presented_tokens(request):
            holder = self._tokens.holder_of(token)
            if wait := self._delays.check(address_of(request), token, holder):
                return ask_to_wait(request, wait)
        request.state.viewer = await self._tokens.viewer(request)
        given = request.query_params.get("token")
        opened = None if given is None or is_feed(path) else self._tokens.holder_of(given)
        if given is not None and opened is not None:
            # Log the browser in and redirect to the address without the token, so that it does not
            # stay in the history.
            rest = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
            response = see_other(local_path(_with_query(request, urlencode(rest))))
            # Login CSRF: anybody can write a link with a restricted token, which must not replace a
            # full login of whoever follows it, or with their own, under which the follower would
            # then write. The same access needs no second login.
            viewer = request.state.viewer
            is_same = viewer is not None and viewer.login and opened.scope == viewer.scope
            is_more = viewer is not None and (viewer.has_full_access or viewer.account != "")
            if not (is_same or (is_more and opened != viewer) or opened.account):
                await self._tokens.log_in(given, response, secure=request.url.scheme == "https")
            return response
        return None if request.state.viewer else ask_to_log_in(request)


def see_other(target: str) -> Response:
    """Return the redirect after a form, which the browser follows with a GET."""
    return RedirectResponse(target, HTTPStatus.SEE_OTHER)


def add_security_headers(headers: MutableHeaders, *, is_indexable: bool = False) -> None:
    """Add the headers of every response: `HEADERS`, and that it is private and not indexed."""
    headers.update(HEADERS)
    headers.setdefault("Cache-Control", "private, no-cache")
    if not is_indexable:
        headers["X-Robots-Tag"] = "noindex"


def refuse(
    request: Request,
    status: HTTPStatus,
    message: str,
    headers: dict[str, str] | None = None,
    *,
    kind: str = "",
    param: str | None = None,
) -> Response:
    """Return a refusal: as a page to a browser that asks for one, else as JSON, in the error format
    of the API (`ErrorEnvelope`)."""
    if wants_page(request):
        response = page(request, "problem.html", status=status, error=status, message=message)
        response.headers.update(headers or {})
        return response
    problem = {"message": message, "type": kind or status.name.lower(), "param": param}
    return JSONResponse({"error": problem}, status, headers)


def wants_page(request: Request) -> bool:
    """Return True if a browser asks for a page, and not a program for data."""
    is_api = request.scope["path"].startswith(("/api/", "/mcp"))
    return "text/html" in request.headers.get("accept", "") and not is_api


def ask_to_wait(request: Request, seconds: float) -> Response:
    """Return the 429 for an address that has sent too many wrong tokens."""
    wait = math.ceil(seconds)
    text = f"There were too many wrong tokens from your address; try again in {wait} s."
    return refuse(request, HTTPStatus.TOO_MANY_REQUESTS, text, {"Retry-After": str(wait)})


def local_path(target: str) -> str:
    """Return `target` if it is a path of this site, else `/`: no open redirects."""
    # Browsers read "//host" and "/\host" as addresses of another host.
    fine = target.startswith("/") and not target.startswith("//") and "\\" not in target
    return target if fine and target.isprintable() else "/"


def ask_to_log_in(request: Request) -> Response:
    """Return a redirect to the login page for a browser that asks for a page, else a 401."""
    if wants_page(request) and request.method in ("GET", "HEAD"):
        target = quote(
            _with_query(request, request.scope["query_string"].decode("latin-1")), safe=""
        )
        return see_other(f"/login?next={target}")
    return refuse(
        request,
        HTTPStatus.UNAUTHORIZED,
        "Send the token of this site as `Authorization: Bearer TOKEN`; its operator has set it"
        " as WEB_TOKEN or as token in [web].",
        {"WWW-Authenticate": "Bearer"},
    )


def _with_query(request: Request, query: str) -> str:
    """Return the requested path, percent-encoded, with another query string."""
    path = quote(request.scope["path"])
    return f"{path}?{query}" if query else path
