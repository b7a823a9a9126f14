"""Error responses in the format of OpenAI, or of Anthropic for clients of its API.

Sources: https://platform.openai.com/docs/guides/error-codes and
https://docs.anthropic.com/en/api/errors
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import MAX_BODY_SIZE_SCOPE_KEY
from starlette.requests import Request
from starlette.responses import Response

from agent_server.errors import ApiError, BodyTooLarge, InvalidRequest
from agent_server.http.responses import JsonBody, sse_event

MESSAGES_PATH = "/v1/messages"
"""The path of Anthropic's API, and the prefix of its further ones."""

ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

FIXED_VALUE_ERRORS = ("literal_error", "union_tag_invalid")
"""pydantic's error types for a value that is none of a fixed set."""


def anthropic_error(error: ApiError, status: int | None = None) -> dict[str, Any]:
    """Return `error` in Anthropic's format, which has no field for `param`.

    `status` replaces that of the error.
    """
    status = status or error.status
    kind = ANTHROPIC_KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def error_event(error: ApiError, path: str) -> bytes:
    """Return the last event of a stream at `path` that ends with `error`."""
    if _speaks_anthropic(path):
        return sse_event(anthropic_error(error), "error")
    return sse_event(error.as_wire())


def error_response(error: ApiError, path: str, status: int | None = None) -> JsonBody:
    """Return the response to a request for `path`; `status` replaces that of the error."""
    status = status or error.status
    body = anthropic_error(error, status) if _speaks_anthropic(path) else error.as_wire()
    return JsonBody(body, status, error.headers)


async def respond_with_error(request: Request, error: Exception) -> Response:
    """Return the error response of the API for an ApiError, RequestValidationError or
    HTTPException."""
    path = request.url.path
    if isinstance(error, ApiError):
        return error_response(error, path)
    if isinstance(error, RequestValidationError):
        # pydantic reports the errors of all branches of a union. The deepest one is most likely in
        # the branch that was meant; of those equally deep, a wrong value says more than missing
        # fields.
        problem = max(
            error.errors(), key=lambda each: (len(each["loc"]), each["type"] in FIXED_VALUE_ERRORS)
        )
        if problem["type"] == "json_invalid":
            invalid = InvalidRequest("the body is not valid JSON", code="invalid_json")
        else:
            param = _param(problem, error.body)
            message = str(problem["msg"]).removeprefix("Value error, ")
            message = f"{param}: {message}" if param else message
            invalid = InvalidRequest(message, param=param)
        return error_response(invalid, path)
    assert isinstance(error, HTTPException)
    if error.status_code == BodyTooLarge.status:
        return error_response(too_large(request.scope[MAX_BODY_SIZE_SCOPE_KEY]), path)
    text = error.detail
    if error.status_code == 404:
        text = f"there is no {path} here; see /openapi.json"
    elif error.status_code == 405:
        text = f"{request.method} is not for {path}"
    return error_response(InvalidRequest(text, headers=error.headers), path, error.status_code)


def too_large(most: int) -> BodyTooLarge:
    """Return the error for a body of more than `most` bytes."""
    return BodyTooLarge(f"the request body is longer than {most} bytes ([server] max_body_bytes)")


def _param(problem: Mapping[str, Any], body: Any) -> str | None:
    """Render pydantic's location `("body", "messages", 0, "user", "content")` as
    `messages[0].content`.

    Steps that the body does not have, such as "user", name a branch of a union; but the last step
    of a missing field is its name.
    """
    kind, *steps = problem["loc"]
    if kind != "body":
        return str(steps[0])  # a header, or a parameter of the path or query
    path = ""
    for step in steps:
        if isinstance(body, list) and isinstance(step, int):
            path, body = f"{path}[{step}]", body[step]
        elif isinstance(body, dict) and step in body:
            body = body[step]
            if step.isidentifier():
                path = f"{path}.{step}" if path else step
    if problem["type"] == "missing":
        path = f"{path}.{steps[-1]}" if path else steps[-1]
    return path or None


def _speaks_anthropic(path: str) -> bool:
    return path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/")
