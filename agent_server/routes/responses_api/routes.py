"""/v1/responses: answers as items, stored so that a conversation can continue from them."""

from __future__ import annotations

import json
import uuid
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.errors import InvalidRequest, NotFound
from agent_server.http.responses import respond, to_json
from agent_server.metering.request_context import HEADERS
from agent_server.response_store import StoredResponse
from agent_server.routes.dependencies import BodyRoute, Context, Server
from agent_server.routes.responses_api.builder import ResponseBuilder
from agent_server.routes.responses_api.request import ResponseRequest, as_messages
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer
from agent_server.schemas.responses import ERRORS, DeletedResponse, answers

router = APIRouter(prefix="/v1/responses", route_class=BodyRoute, responses=ERRORS)

OBJECT = "https://platform.openai.com/docs/api-reference/responses/object"

NOT_FOUND_REASONS = (
    "here: it was never stored, was deleted, was evicted by newer ones, or was lost when the"
    " process that stored it ended"
)
"""Reasons for an unknown id."""


@router.post("", response_model=None, responses=answers(OBJECT, stream=True), openapi_extra=HEADERS)
async def create(
    request: Request, body: ResponseRequest, server: Server, context: Context
) -> Response:
    """Answer an input, as one response or as a stream of events."""
    owner, response_id = context.key.name, f"resp_{uuid.uuid4().hex}"
    before = None
    if (previous := body.previous_response_id) is not None:
        before = server.responses.get(owner, previous)
        if before is None:
            raise InvalidRequest(
                f"there is no response {previous!r} to follow {NOT_FOUND_REASONS}",
                param="previous_response_id",
                code="previous_response_not_found",
            )
    history = json.loads(before.messages) if before else []
    # A continued conversation keeps its session, and so the engine that has cached its prompt.
    context = context.in_session(
        body.prompt_cache_key or (before.session if before else response_id)
    )
    session = context.session or response_id

    def store_response(answer: ResponseBuilder) -> None:
        if body.store is not False:
            messages = to_json([*history, *body.messages(), *as_messages(answer.items())])
            stored = StoredResponse(response_id, to_json(answer.as_wire()), messages, session)
            server.responses.save(owner, stored)

    def builder(answer: ModelAnswer) -> ResponseBuilder:
        meta = ChunkMeta(answer.model, context.created, response_id)
        return ResponseBuilder(body, meta, store_response)

    async def start() -> ModelAnswer:
        try:
            return await server.pool.answer(body.as_chat(history), context)
        except InvalidRequest as error:
            # The messages were built from `input`, the only field of the two that the client sent.
            if error.param and error.param.startswith("messages"):
                error.param = "input"
            raise

    return await respond(request, start(), builder, stream=body.stream)


@router.get("/{identity}", response_model=None, responses=answers(OBJECT))
async def retrieve(
    identity: str, server: Server, context: Context, stream: bool = False
) -> Response:
    """Return a stored response."""
    if stream:
        raise InvalidRequest("a response that is complete is not streamed again", param="stream")
    stored = server.responses.get(context.key.name, identity)
    if stored is None:
        raise _not_found(identity)
    return Response(stored.response, media_type="application/json")


@router.delete("/{identity}", responses=answers(DeletedResponse))
async def delete(identity: str, server: Server, context: Context) -> dict[str, Any]:
    """Delete a stored response, with its copy of the conversation that led to it."""
    if not server.responses.delete(context.key.name, identity):
        raise _not_found(identity)
    return {"id": identity, "object": "response", "deleted": True}


def _not_found(identity: str) -> NotFound:
    return NotFound(
        f"there is no response {identity!r} {NOT_FOUND_REASONS}",
        param="response_id",
        code="response_not_found",
    )
