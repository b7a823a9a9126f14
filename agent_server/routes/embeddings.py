"""POST /v1/embeddings: texts as vectors, by this server's own model or by an upstream."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic_core import to_json
from starlette.responses import JSONResponse, Response

from agent_server.engines.embeddings import NAME
from agent_server.http.responses import JsonBody, cancel_on_disconnect
from agent_server.metering.request_context import HEADERS
from agent_server.routes.dependencies import Context, Server
from agent_server.schemas.embeddings import EmbeddingsRequest
from agent_server.schemas.responses import Embeddings, answers

router = APIRouter(prefix="/v1")


class VectorsResponse(JSONResponse):
    """A JSON response of up to 800,000 finite numbers.

    pydantic-core encodes it in a tenth of the time for which the event loop, and so every chat,
    would wait for the standard library.
    """

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return to_json(content)


@router.post(
    "/embeddings", response_model=None, responses=answers(Embeddings), openapi_extra=HEADERS
)
async def embeddings(
    request: Request, body: EmbeddingsRequest, server: Server, context: Context
) -> Response:
    """Embed texts, with this server's own model or at the upstream that `model` names."""
    body.require_known()
    own = body.model == NAME or (body.model is None and await server.embedder.ready())
    work = (server.embedder if own else server.pool).embeddings(body.as_wire(), context)
    made = await cancel_on_disconnect(request.receive, work)
    return VectorsResponse(made) if own else JsonBody(made)
