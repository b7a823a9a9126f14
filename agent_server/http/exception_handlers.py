"""Exception handlers that convert every error of a request to an error response of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agent_server.errors import ApiError, BodyTooLarge, InvalidRequest
from agent_server.http.error_responses import ErrorResponse

TAGGED_FIELDS = ("messages", "content", "input")
"""Fields with lists of tagged unions: in pydantic's location the index of an item is followed by
its tag (role or type), which is not a field."""

FIXED_VALUE_ERRORS = ("literal_error", "union_tag_invalid")
"""pydantic's error types for a value that is none of a fixed set."""

UNION_BRANCHES = frozenset({"str", "int", "float", "bool", "numbers", "texts", "lists"})
"""Steps of a pydantic location that name a branch of a union."""


def register(app: FastAPI) -> None:
    """Register the handlers with `app`."""
    for kind in (ApiError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refuse)


def to_response(
    request: Request, error: ApiError | RequestValidationError | HTTPException
) -> Response:
    """Return the response to a request that ended in `error`."""
    if isinstance(error, ApiError):
        return ErrorResponse(error)
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    return _http_error(request, error)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError | RequestValidationError | HTTPException)
    return to_response(request, error)


def _invalid(error: RequestValidationError) -> Response:
    # pydantic reports the errors of all branches of a union. The deepest one is most likely in the
    # branch that was meant; of those equally deep, a wrong value says more than missing fields.
    problem = max(
        error.errors(), key=lambda each: (len(each["loc"]), each["type"] in FIXED_VALUE_ERRORS)
    )
    if problem["type"] == "json_invalid":
        return ErrorResponse(InvalidRequest("the body is not valid JSON", code="invalid_json"))
    param = _param(problem["loc"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    text = f"{param}: {message}" if param else message
    return ErrorResponse(InvalidRequest(text, param=param))


def _http_error(request: Request, error: HTTPException) -> Response:
    if error.status_code == BodyTooLarge.status:
        return ErrorResponse(BodyTooLarge(error.detail))
    if error.status_code == 404:
        text = f"there is no {request.url.path} here; see /openapi.json"
    elif error.status_code == 405:
        text = f"{request.method} is not for {request.url.path}"
    else:
        text = error.detail
    return ErrorResponse(InvalidRequest(text, headers=error.headers), error.status_code)


def _param(location: Sequence[Any]) -> str | None:
    """Render `("body", "messages", 0, "user", "content")` as `messages[0].content`."""
    if location[0] != "body":
        return str(location[1])  # a header, or a parameter of the path or query
    path, field = "", ""
    after_index = False
    for step in location[1:]:
        if isinstance(step, int):
            path += f"[{step}]"
            after_index = True
            continue
        is_tag = after_index and field in TAGGED_FIELDS
        after_index = False
        if not is_tag and step not in UNION_BRANCHES and step.isidentifier():
            path += f".{step}" if path else step
            field = step
    return path or None
