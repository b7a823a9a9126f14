"""Routes whose endpoints take a validated body, and the dependencies of endpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any, get_type_hints

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from agent_server.admission.admitted_engine import AdmittedEngine
from agent_server.errors import BodyTooLarge, ClientGone, InvalidRequest
from agent_server.metering.accounts import Metering
from agent_server.metering.request_context import RequestContext
from agent_server.models.pool import ModelPool
from agent_server.response_store import ResponseStore
from agent_server.tendril_registry import TendrilRegistry

MAX_COMMAS = 50_000
"""Maximum number of commas in one body, between values or inside texts. Parsing a body with very
many values would block all other requests, so it is refused before that. A prompt with so many
commas has 100,000 tokens or more; embeddings may be requested for many long texts at once."""

EMBEDDINGS_PATH = "/v1/embeddings"


@dataclass(frozen=True, slots=True)
class ServerState:
    """The parts of a running server that its endpoints use.

    `currency` is that of the prices, `tendrils` has the reports of live tendrils; `started` is a
    Unix timestamp.
    """

    pool: ModelPool
    embedder: AdmittedEngine
    metering: Metering
    currency: str
    responses: ResponseStore
    tendrils: TendrilRegistry
    started: int = field(default_factory=lambda: int(time.time()))


async def _server_state(request: Request) -> ServerState:
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state


async def _context(request: Request) -> RequestContext:
    context = request.scope["request_context"]
    assert isinstance(context, RequestContext)
    return context


Server = Annotated[ServerState, Depends(_server_state)]
Context = Annotated[RequestContext, Depends(_context)]


class BodyRoute(APIRoute):
    """A route whose endpoint takes `request`, `body`, `server` and `context`, and nothing else.

    FastAPI describes it in `/openapi.json` by this signature. It is called without FastAPI's
    dependency injection, which takes 0.1 ms of the 0.6 ms of CPU time of a short completion. Routes
    without a body are FastAPI's own.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the request handler, which raises ApiError or RequestValidationError."""
        endpoint = self.endpoint
        hints = get_type_hints(endpoint, include_extras=True)
        if "body" not in hints:
            return super().get_route_handler()
        kind = TypeAdapter[Any](hints["body"])

        async def handle(request: Request) -> Response:
            # A page of another site can make a browser send other types without a CORS preflight.
            media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media != "application/json" and not media.endswith("+json"):
                raise InvalidRequest("send the body as JSON, with content-type: application/json")
            try:
                content = await request.body()
            except ClientDisconnect:
                raise ClientGone("the client left in the middle of its request") from None
            if content.count(b",") > MAX_COMMAS and request.scope["path"] != EMBEDDINGS_PATH:
                text = f"the request body has too many values: at most {MAX_COMMAS} commas"
                raise BodyTooLarge(text)
            try:
                body = kind.validate_json(content)
            except ValidationError as error:
                # The same locations as in FastAPI's own validation errors.
                problems = error.errors(include_url=False, include_context=False)
                raise RequestValidationError(
                    [{**problem, "loc": ("body", *problem["loc"])} for problem in problems]
                ) from None
            answer: Response = await endpoint(
                request=request,
                body=body,
                server=request.app.state.server,
                context=request.scope["request_context"],
            )
            return answer

        return handle
