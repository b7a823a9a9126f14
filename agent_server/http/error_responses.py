"""Error responses in the format of OpenAI, or of Anthropic for clients of its API.

Sources: https://platform.openai.com/docs/guides/error-codes and
https://docs.anthropic.com/en/api/errors
"""

from __future__ import annotations

from typing import Any

from starlette.types import Receive, Scope, Send

from agent_server.errors import ApiError
from agent_server.http.responses import JsonBody, sse_event

MESSAGES_PATH = "/v1/messages"
"""The path of Anthropic's API, and the prefix of its further ones."""

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def speaks_anthropic(path: str) -> bool:
    """Return whether a path belongs to Anthropic's API."""
    return path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/")


def anthropic_error(error: ApiError, status: int | None = None) -> dict[str, Any]:
    """Return `error` in Anthropic's format, which has no field for `param`.

    `status` replaces that of the error.
    """
    status = status or error.status
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def error_event(error: ApiError, path: str) -> bytes:
    """Return the last event of a stream at `path` that ends with `error`."""
    if speaks_anthropic(path):
        return sse_event(anthropic_error(error), "error")
    return sse_event(error.as_wire())


class ErrorResponse(JsonBody):
    """An error response in the format of the API that the requested path belongs to."""

    def __init__(self, error: ApiError, status: int | None = None) -> None:
        self._error = error
        super().__init__(error.as_wire(), status or error.status, error.headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, in the format that the path in `scope` calls for."""
        if speaks_anthropic(scope["path"]):
            other = anthropic_error(self._error, self.status_code)
            answer = JsonBody(other, self.status_code, self._error.headers)
            await answer(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
