"""Error responses: an HTML page for browsers, JSON for all other clients."""

from __future__ import annotations

from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from harnesses.web.auth.middleware import TOO_LONG, add_security_headers, ask_to_log_in, refuse
from harnesses.web.rendering.view import page
from storage.db.errors import BadCursor, ServerAway

_ADVICE = {
    404: "There is no such page. The channels are at /, and /openapi.json describes the API.",
    405: "This address does not accept this method; see /openapi.json.",
    413: TOO_LONG,
}
_log = structlog.get_logger()


def register_handlers(app: FastAPI) -> None:
    """Register handlers that give all errors of the app the same form."""
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(BadCursor, _on_validation_error)
    app.add_exception_handler(ServerAway, _on_server_away)
    app.add_exception_handler(Exception, _on_server_error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.UNAUTHORIZED:
        return ask_to_log_in(request)
    message, status = str(error.detail), HTTPStatus(error.status_code)
    if message in (status.phrase, "Content Too Large"):  # Starlette's default, not our own text
        message = _ADVICE.get(status, message)
    return _answer(request, status, message)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    problems = [{"loc": ("query", "cursor"), "msg": str(error), "type": "cursor"}]
    if isinstance(error, RequestValidationError):
        problems = list(error.errors())
    names = [".".join(map(str, each["loc"][1:])) or "request body" for each in problems]
    explained = []
    for name, each in zip(names, problems, strict=True):
        text = str(each["msg"]).removeprefix("Value error, ")
        if each["type"] == "timezone_aware":
            text += ", for example a Z at the end"
        explained.append(f"{name}: {text}")
    return _answer(
        request,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "; ".join(explained),
        kind="invalid_request",
        param=names[0],
    )


async def _on_server_away(request: Request, error: Exception) -> Response:
    _log.warning("web.unavailable", path=request.scope["path"], error=str(error))
    text = "The log cannot be read now; try again in a moment."
    response = _answer(request, HTTPStatus.SERVICE_UNAVAILABLE, text, kind="unavailable")
    response.headers["retry-after"] = "5"
    return response


async def _on_server_error(request: Request, error: Exception) -> Response:
    _log.error("web.request_failed", path=request.scope["path"], error=type(error).__name__)
    response = _answer(
        request,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "An internal error occurred; the web tendril has logged the details. Try again.",
        kind="internal_error",
    )
    # Starlette calls this handler outside all middleware, so `SecurityMiddleware` does not see the
    # response.
    add_security_headers(response.headers)
    return response


def _answer(
    request: Request, status: HTTPStatus, message: str, *, kind: str = "", param: str | None = None
) -> Response:
    is_api = request.scope["path"].startswith("/api/")
    if "text/html" in request.headers.get("accept", "") and not is_api:
        return page(request, "problem.html", status=status, message=message)
    return refuse(status, message, kind=kind, param=param)
