"""Fast path to an endpoint that bypasses FastAPI's router, middleware and dependency injection.

It saves 30 % of the CPU time of a short completion (0.48 ms instead of 0.69 ms on one core of a
2-core virtual machine, in front of the instant engine of `make bench-server`). Route, endpoint and
signature are the same as through FastAPI, and the headers have been validated before either.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, get_type_hints

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIRouter
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_server.errors import ApiError, ClientGone, InvalidRequest
from agent_server.http.exception_handlers import to_response
from agent_server.metering.request_context import request_context
from agent_server.models.pool import ModelPool

Handle = Callable[[Request], Coroutine[Any, Any, Response]]


class FastRoute(APIRoute):
    """A route whose endpoint takes `request`, `body`, `pool` and `context`, and nothing else.

    Its description in `/openapi.json` is generated from the signature, as for every route.
    """

    def make_handler(self, pool: ModelPool) -> Handle:
        """Return a request handler, which raises ApiError or RequestValidationError."""
        endpoint = self.endpoint
        kind: type[BaseModel] = get_type_hints(endpoint)["body"]

        async def handle(request: Request) -> Response:
            _require_json(dict(request.scope["headers"]))
            body = _read(kind, await _content(request.receive))
            context = request_context(request.scope)
            answer: Response = await endpoint(
                request=request, body=body, pool=pool, context=context
            )
            return answer

        return handle


async def _content(receive: Receive) -> bytes:
    """Read the body of a request. Raises ClientGone."""
    parts, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client left in the middle of its request")
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _read(kind: type[BaseModel], content: bytes) -> BaseModel:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        # The same locations as in FastAPI's own validation errors.
        problems = error.errors(include_url=False, include_context=False)
        raise RequestValidationError(
            [{**problem, "loc": ("body", *problem["loc"])} for problem in problems]
        ) from None


def _require_json(headers: Mapping[bytes, bytes]) -> None:
    """Raise InvalidRequest unless the content type is JSON.

    A page of another site can make a browser send other types without a CORS preflight.
    """
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json" and not kind.endswith(b"+json"):
        raise InvalidRequest("send the body as JSON, with content-type: application/json")


class FastPathMiddleware:
    """ASGI middleware that handles the fast routes of `routers` itself, with `pool`.

    The routes remain in the application for its OpenAPI description, and for other methods.
    """

    def __init__(self, app: ASGIApp, pool: ModelPool, routers: Iterable[APIRouter]) -> None:
        self._app = app
        self._direct: dict[tuple[str, str], tuple[FastRoute, Handle]] = {
            (method, route.path): (route, route.make_handler(pool))
            for router in routers
            for route in router.routes
            if isinstance(route, FastRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        found = self._direct.get((scope["method"], scope["path"]))
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"], handle = found  # the access log and the metrics read the route's path
        request = Request(scope, receive)
        try:
            response = await handle(request)
        except (ApiError, RequestValidationError, HTTPException) as error:
            response = to_response(request, error)
        await response(scope, receive, send)
