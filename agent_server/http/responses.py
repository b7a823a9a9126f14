"""HTTP responses: JSON, and server-sent events that end when the client disconnects. Errors are in
the format of OpenAI, or of Anthropic for clients of its API.

A model's text cannot end an event early, because JSON escapes line breaks.

Sources: https://platform.openai.com/docs/guides/error-codes and
https://docs.anthropic.com/en/api/errors
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Protocol, TypeVar

import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import MAX_BODY_SIZE_SCOPE_KEY
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from agent_server.engine_protocol import Chunk
from agent_server.errors import (
    ApiError,
    BodyTooLarge,
    ClientGone,
    EngineUnavailable,
    InvalidRequest,
)
from agent_server.schemas.chat_answer import ModelAnswer
from terrarium.cancellation import CancelScope, ScopeCancelled

log = structlog.get_logger()
T = TypeVar("T")

Events = AsyncGenerator[bytes, None]

DONE = b"data: [DONE]\n\n"

QUICK = 0.01
"""Seconds before a task is started that watches for the client's disconnect."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_json(data: Any) -> bytes:
    """Encode `data` as JSON. Raises EngineUnavailable for a number that JSON cannot represent.

    A lone surrogate, from an engine that splits a character between two chunks, stays escaped, as
    UTF-8 cannot encode it.
    """
    try:
        return _ENCODER.encode(data).encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode()
    except ValueError:
        raise EngineUnavailable("the engine sent a number that JSON cannot carry") from None


def sse_event(data: Any, name: str | None = None) -> bytes:
    """Return one server-sent event; `name` is its type, for APIs that have several."""
    kind = b"event: %s\n" % name.encode() if name else b""
    return b"%sdata: %s\n\n" % (kind, to_json(data))


class JsonBody(JSONResponse):
    """A JSON response that is sent as a whole."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return to_json(content)


class Renderer(Protocol):
    """The form of one answer in the API by which it was asked for."""

    async def whole(self, answer: ModelAnswer) -> Mapping[str, Any]:
        """Return the answer as one object. Raises ApiError."""

    def events(self, answer: ModelAnswer) -> Events:
        """Yield the answer as server-sent events; an ApiError is the last of them."""


async def respond(
    request: Request,
    starting: Coroutine[Any, Any, ModelAnswer],
    renderer: Callable[[ModelAnswer], Renderer],
    *,
    stream: bool | None,
) -> Response:
    """Return the response to a request for an answer, whole or as a `stream`.

    A stream is returned once its first chunk has arrived: an error before that is raised, and so
    has its own status; a later one becomes an event.
    """

    async def complete() -> Mapping[str, Any]:
        answer = await starting
        return await renderer(answer).whole(answer)

    if not stream:
        return JsonBody(await cancel_on_disconnect(request.receive, complete()))
    answer = await cancel_on_disconnect(request.receive, starting)
    return EventStream(renderer(answer).events(answer), answer)


async def openai_events(
    chunks: AsyncIterable[Chunk], convert: Callable[[Chunk], Iterable[Mapping[str, Any]]]
) -> Events:
    """Yield the events of a stream of OpenAI's API: what `convert` makes of each chunk, and
    `[DONE]`; an ApiError is the last event."""
    try:
        async for chunk in chunks:
            for each in convert(chunk):
                yield sse_event(each)
    except ApiError as error:
        yield sse_event(log_stream_error(error).as_wire())
        return
    yield DONE


async def cancel_on_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; if the client disconnects first, cancel it. Raises ClientGone
    then."""
    loop, stoppable = asyncio.get_running_loop(), CancelScope()
    leaving: asyncio.Task[None] | None = None

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    def watch() -> None:
        nonlocal leaving
        leaving = loop.create_task(wait_for_disconnect())
        leaving.add_done_callback(stop)

    def stop(_leaving: asyncio.Task[None]) -> None:
        stoppable.stop()

    # Only `receive` tells that the client has gone, and waiting for it takes a task of its own.
    # Most errors and short answers are done before that is worthwhile.
    timer = loop.call_later(QUICK, watch)
    try:
        return await stoppable.result(work)
    except ScopeCancelled:
        raise ClientGone("the client left before the answer was complete") from None
    finally:
        timer.cancel()
        if leaving is not None:
            # Without the callback: else the end of `leaving` would cancel what this task does next.
            leaving.remove_done_callback(stop)
            leaving.cancel()


class EventStream(Response):
    """A response of server-sent events; the generation ends when the client disconnects."""

    media_type = "text/event-stream"

    def __init__(self, events: Events, answer: ModelAnswer) -> None:
        self._answer = answer
        self._events = events
        self.status_code = 200
        self.background = None
        # nginx would otherwise buffer the stream (x-accel-buffering).
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events, and close the generation however the sending ends."""

        async def send_all() -> None:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            async for each in self._events:
                await send({"type": "http.response.body", "body": each, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        async with aclosing(self._answer), aclosing(self._events):
            with suppress(ClientGone):
                await cancel_on_disconnect(receive, send_all())


def log_stream_error(error: ApiError) -> ApiError:
    """Log an error that ends a stream already begun, and return it."""
    log.warning("stream.broken", status=error.status, code=error.code)
    return error


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
