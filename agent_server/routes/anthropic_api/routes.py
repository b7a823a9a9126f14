"""POST /v1/messages and /v1/messages/count_tokens, in the form of Anthropic's API."""

from __future__ import annotations

import uuid

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.http.json_encoding import JsonBody
from agent_server.http.streaming import cancel_on_disconnect, start_stream
from agent_server.routes.anthropic_api.builder import MessageBuilder
from agent_server.routes.anthropic_api.schemas import CountTokensRequest, MessagesRequest
from agent_server.routes.anthropic_api.translate import to_chat_request, to_tokenize_request
from agent_server.routes.dependencies import ModelPoolDep, Session
from agent_server.schemas.chat_answer import ChunkMeta, assemble
from agent_server.schemas.responses import (
    AnthropicErrorBody,
    AnthropicMessage,
    InputTokens,
    answers,
    errors,
)

router = APIRouter(prefix="/v1/messages", responses=errors(AnthropicErrorBody))


@router.post("", response_model=None, responses=answers(AnthropicMessage, stream=True))
async def messages(
    request: Request, body: MessagesRequest, pool: ModelPoolDep, session: Session
) -> Response:
    """Answer a conversation, as one message or as a stream of events."""
    meta = ChunkMeta(pool.name, id=f"msg_{uuid.uuid4().hex}")
    message = MessageBuilder(meta, thinking=body.shows_thinking)
    chunks = pool.answer(to_chat_request(body), meta, session)
    if body.stream:
        return await start_stream(request, chunks, message.events)
    return JsonBody(
        message.whole(await cancel_on_disconnect(request.receive, assemble(chunks, meta)))
    )


@router.post("/count_tokens", response_model=None, responses=answers(InputTokens))
async def count_tokens(body: CountTokensRequest, pool: ModelPoolDep) -> Response:
    """Count the tokens that this conversation would send to the engine."""
    return JsonBody({"input_tokens": (await pool.count(to_tokenize_request(body))).count})
