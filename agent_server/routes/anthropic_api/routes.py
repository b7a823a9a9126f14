"""POST /v1/messages and /v1/messages/count_tokens, in the form of Anthropic's API."""

from __future__ import annotations

import uuid
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.http.responses import Events, JsonBody, cancel_on_disconnect, start_stream
from agent_server.metering.request_context import HEADERS
from agent_server.routes.anthropic_api.builder import MessageBuilder
from agent_server.routes.anthropic_api.schemas import CountTokensRequest, MessagesRequest
from agent_server.routes.anthropic_api.translate import to_chat_request, to_tokenize_request
from agent_server.routes.dependencies import Context, ModelPoolDep
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer, assemble
from agent_server.schemas.responses import (
    AnthropicErrorBody,
    AnthropicMessage,
    InputTokens,
    answers,
    errors,
)

router = APIRouter(prefix="/v1/messages", responses=errors(AnthropicErrorBody))


@router.post(
    "",
    response_model=None,
    responses=answers(AnthropicMessage, stream=True),
    openapi_extra=HEADERS,
)
async def messages(
    request: Request, body: MessagesRequest, pool: ModelPoolDep, context: Context
) -> Response:
    """Answer a conversation, as one message or as a stream of events."""
    asked = to_chat_request(body)

    def meta(answer: ModelAnswer) -> ChunkMeta:
        return ChunkMeta(answer.model, context.created, f"msg_{uuid.uuid4().hex}")

    def events(answer: ModelAnswer) -> Events:
        return MessageBuilder(meta(answer), thinking=body.shows_thinking).events(answer)

    async def whole() -> dict[str, Any]:
        answer = await pool.answer(asked, context)
        head = meta(answer)
        message = MessageBuilder(head, thinking=body.shows_thinking)
        return message.whole(await assemble(answer, head))

    if body.stream:
        return await start_stream(request.receive, pool.answer(asked, context), events)
    return JsonBody(await cancel_on_disconnect(request.receive, whole()))


@router.post("/count_tokens", response_model=None, responses=answers(InputTokens))
async def count_tokens(body: CountTokensRequest, pool: ModelPoolDep, context: Context) -> Response:
    """Count the tokens that a request with this conversation would send to the engine."""
    counted = await pool.count(to_tokenize_request(body), context)
    return JsonBody({"input_tokens": counted.count})
