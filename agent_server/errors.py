"""The exceptions of the agent server, which clients get as OpenAI error objects.

    ApiError
    ├── InvalidRequest 400
    │   ├── ContextLengthExceeded 400
    │   └── ToolsRefused 400
    ├── Unauthorized 401
    ├── Forbidden 403
    ├── NotFound 404
    ├── BodyTooLarge 413
    ├── RateLimited 429
    ├── ClientGone 499
    ├── Unsupported 501
    ├── EngineUnavailable 503
    │   └── EngineMisconfigured 503
    ├── QueueTimeout 503
    └── EngineTimeout 504
    PullError (of the command line)

Shape of the object: https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar


class ApiError(Exception):
    """An error response of the API; `message` is sent to the client verbatim.

    With `retry_after` it also says after how many seconds another attempt is worthwhile. A subclass
    names its HTTP `status`, its `kind` (the object's `type`) and its `code`, or inherits them.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None

    def __init_subclass__(
        cls, *, status: int | None = None, kind: str | None = None, code: str | None = None
    ) -> None:
        """Set what the subclass names."""
        cls.status, cls.kind = status or cls.status, kind or cls.kind
        cls.default_code = code or cls.default_code

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.headers = dict(headers or {})
        if retry_after is not None:
            wait = str(max(1, math.ceil(retry_after)))
            self.headers["retry-after"] = wait
            message = f"{message}; try again in {wait} s"
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.default_code

    def as_wire(self) -> dict[str, Any]:
        """Return the error object, ready for JSON."""
        body = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": body}


class InvalidRequest(ApiError, status=400, kind="invalid_request_error"):
    """The request cannot be honoured as it stands; `param` names the field."""


class ContextLengthExceeded(InvalidRequest, code="context_length_exceeded"):
    """The prompt is longer than the model's context: `limit` tokens, None if the engine does not
    say."""

    def __init__(self, message: str, *, param: str | None = None, limit: int | None = None) -> None:
        super().__init__(message, param=param)
        self.limit = limit


class ToolsRefused(InvalidRequest):
    """The model, or the server that runs it, does not support tools, or not a free choice."""


class Unauthorized(ApiError, status=401, kind="authentication_error", code="invalid_api_key"):
    """The bearer key is missing or wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"www-authenticate": "Bearer"})


class Forbidden(ApiError, status=403, kind="permission_error", code="forbidden"):
    """The client may not do this, whatever key it has."""


class NotFound(ApiError, status=404, kind="invalid_request_error"):
    """There is no such model or address."""


class BodyTooLarge(ApiError, status=413, kind="invalid_request_error", code="request_too_large"):
    """The request body exceeds `[server] max_body_bytes`, or has too many values."""


class RateLimited(ApiError, status=429, kind="rate_limit_error", code="rate_limit_exceeded"):
    """A quota or budget is exhausted, the queue is full, or the upstream answered 429."""


class ClientGone(ApiError, status=499, kind="client_error", code="client_closed_request"):
    """The client closed the connection before its answer was complete.

    499 is nginx's convention. It appears in logs and metrics only: nobody is left to receive it.
    """


class Unsupported(ApiError, status=501, kind="invalid_request_error", code="unsupported"):
    """The engine lacks the requested feature.

    The SDKs of OpenAI and Anthropic would repeat the request after a 5xx without the header.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"x-should-retry": "false"})


class EngineUnavailable(
    ApiError, status=503, kind="service_unavailable_error", code="engine_unavailable"
):
    """No engine can be reached, or its answer was invalid or broke off; worth a retry."""

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"retry-after": "1"})


class EngineMisconfigured(EngineUnavailable, code="engine_misconfigured"):
    """The engine rejects our key, has no such path or model, or cannot load its file.

    Only the operator can fix that.
    """


class QueueTimeout(ApiError, status=503, kind="service_unavailable_error", code="queue_timeout"):
    """The request has waited for a slot of the engine for the longest time allowed."""


class EngineTimeout(ApiError, status=504, kind="timeout_error", code="engine_timeout"):
    """The engine was silent for longer than `model.timeout`."""


class PullError(Exception):
    """A model could not be downloaded; the message says why and what to do."""
