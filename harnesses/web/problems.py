"""Error responses: an HTML page for browsers, JSON for all other clients."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from harnesses.web.api.models import ErrorDetails, ErrorEnvelope
from harnesses.web.auth.middleware import TOO_LONG, add_security_headers, ask_to_log_in
from harnesses.web.rendering.view import page
from storage.db.errors import BadCursor

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
    app.add_exception_handler(Exception, _on_server_error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.UNAUTHORIZED:
        return ask_to_log_in(request)
    message, status = str(error.detail), HTTPStatus(error.status_code)
    if message in (status.phrase, "Content Too Large"):  # Starlette's default, not our own text
        message = _ADVICE.get(status, message)
    return _answer(request, status, ErrorDetails(message=message, type=status.name.lower()))


async def _on_validation_error(request: Request, error: Exception) -> Response:
    problems = [{"loc": ("query", "cursor"), "msg": str(error), "type": "cursor"}]
    if isinstance(error, RequestValidationError):
        problems = list(error.errors())
    explained = []
    for each in problems:
        text = str(each["msg"]).removeprefix("Value error, ")
        if each["type"] == "timezone_aware":
            text += ", for example a Z at the end"
        explained.append(f"{_name(each['loc'])}: {text}")
    return _answer(
        request,
        422,
        ErrorDetails(
            message="; ".join(explained), type="invalid_request", param=_name(problems[0]["loc"])
        ),
    )


async def _on_server_error(request: Request, error: Exception) -> Response:
    _log.error("web.request_failed", path=request.scope["path"], error=type(error).__name__)
    problem = ErrorDetails(
        message="An internal error occurred; the web tendril has logged the details. Try again.",
        type="internal_error",
    )
    response = _answer(request, 500, problem)
    # Starlette calls this handler outside all middleware, so `SecurityMiddleware` does not see the
    # response.
    add_security_headers(response.headers)
    return response


def _answer(request: Request, status: int, problem: ErrorDetails) -> Response:
    path = request.scope["path"]
    if "text/html" in request.headers.get("accept", "") and not path.startswith("/api/"):
        return page(request, "problem.html", status=status, problem=problem)
    return JSONResponse(ErrorEnvelope(error=problem).model_dump(), status)


def _name(location: Sequence[Any]) -> str:
    return ".".join(str(part) for part in location[1:]) or "request body"
