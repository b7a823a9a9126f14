"""POST /v1/messages and /v1/messages/count_tokens, in the form of Anthropic's API."""

from __future__ import annotations

import uuid
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.http.responses import JsonBody, respond
from agent_server.metering.request_context import HEADERS
from agent_server.routes.anthropic_api.builder import MessageBuilder
from agent_server.routes.anthropic_api.request import CountTokensRequest, MessagesRequest
from agent_server.routes.dependencies import BodyRoute, Context, Server
from agent_server.schemas.chat_answer import ChunkMeta
from agent_server.schemas.responses import ANTHROPIC_ERRORS, InputTokens, answers

router = APIRouter(prefix="/v1/messages", route_class=BodyRoute, responses=ANTHROPIC_ERRORS)


@router.post(
    "",
    response_model=None,
    responses=answers("https://docs.anthropic.com/en/api/messages", stream=True),
    openapi_extra=HEADERS,
)
async def messages(
    request: Request, body: MessagesRequest, server: Server, context: Context
) -> Response:
    """Answer a conversation, as one message or as a stream of events."""
    meta = partial(ChunkMeta, created=context.created, id=f"msg_{uuid.uuid4().hex}")
    return await respond(
        request,
        server.pool.answer(body.as_chat(), context),
        lambda answer: MessageBuilder(meta(answer.model), thinking=body.shows_thinking),
        stream=body.stream,
    )


@router.post("/count_tokens", response_model=None, responses=answers(InputTokens))
async def count_tokens(
    request: Request, body: CountTokensRequest, server: Server, context: Context
) -> Response:
    """Count the tokens that a request with this conversation would send to the engine."""
    counted = await server.pool.count(body.as_tokenize(), context)
    estimated = {"estimated": True} if counted.is_estimate else {}
    return JsonBody({"input_tokens": counted.count} | estimated)
