"""POST /v1/embeddings: texts as vectors, by this server's own model or by an upstream."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic_core import to_json
from starlette.responses import Response

from agent_server.engines.embeddings import NAME
from agent_server.http.responses import JsonBody, cancel_on_disconnect
from agent_server.metering.request_context import HEADERS
from agent_server.routes.dependencies import EMBEDDINGS_PATH, BodyRoute, Context, Server
from agent_server.schemas.responses import ERRORS, answers
from agent_server.schemas.texts import EmbeddingsRequest

router = APIRouter(route_class=BodyRoute, responses=ERRORS)


@router.post(
    EMBEDDINGS_PATH,
    response_model=None,
    responses=answers("https://platform.openai.com/docs/api-reference/embeddings/create"),
    openapi_extra=HEADERS,
)
async def embeddings(
    request: Request, body: EmbeddingsRequest, server: Server, context: Context
) -> Response:
    """Embed texts, with this server's own model or at the upstream that `model` names."""
    body.require_known()
    own = body.model == NAME or (body.model is None and await server.embedder.ready())
    maker = server.embedder if own else server.pool.table.resolve(body.model)[0]
    work = maker.embeddings(body.as_wire(), context)
    made = await cancel_on_disconnect(request.receive, work)
    if not own:
        return JsonBody(made)
    # pydantic-core encodes up to 800,000 finite numbers in a tenth of the time for which the event
    # loop, and so every chat, would wait for the standard library.
    return Response(to_json(made), media_type="application/json")
