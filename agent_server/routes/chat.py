"""POST /v1/chat/completions and the plainer POST /v1/generate."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.engine_protocol import Chunk
from agent_server.errors import ApiError
from agent_server.http.responses import (
    DONE,
    Events,
    JsonBody,
    cancel_on_disconnect,
    log_stream_error,
    sse_event,
    start_stream,
)
from agent_server.metering.request_context import HEADERS, RequestContext
from agent_server.models.pool import ModelPool
from agent_server.routes.dependencies import Context, ModelPoolDep
from agent_server.routes.fast_route import FastRoute
from agent_server.schemas.chat import ChatRequest, GenerateRequest
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer, assemble
from agent_server.schemas.responses import ChatCompletion, GenerateResponse, answers

router = APIRouter(prefix="/v1", route_class=FastRoute)


@router.post(
    "/chat/completions",
    response_model=None,
    responses=answers(ChatCompletion, stream=True),
    openapi_extra=HEADERS,
)
async def chat(
    request: Request, body: ChatRequest, pool: ModelPoolDep, context: Context
) -> Response:
    """Answer a conversation, as one object or as a stream of chunks."""
    context.session = context.session or body.prompt_cache_key

    def events(answer: ModelAnswer) -> Events:
        meta = ChunkMeta(answer.model, context.created)
        return chat_events(answer, meta, include_usage=body.include_usage)

    if body.stream:
        return await start_stream(request.receive, pool.answer(body, context), events)
    return JsonBody(await cancel_on_disconnect(request.receive, _whole(pool, body, context)))


@router.post(
    "/generate", response_model=None, responses=answers(GenerateResponse), openapi_extra=HEADERS
)
async def generate(
    request: Request, body: GenerateRequest, pool: ModelPoolDep, context: Context
) -> Response:
    """Answer one prompt with one text."""
    work = _whole(pool, _as_chat(body), context)
    whole = await cancel_on_disconnect(request.receive, work)
    choice = whole["choices"][0]
    return JsonBody(
        {
            "id": whole["id"],
            "model": whole["model"],
            "text": choice["message"]["content"],
            "finish_reason": choice["finish_reason"],
            "usage": whole["usage"],
        }
    )


async def chat_events(
    chunks: AsyncIterable[Chunk], meta: ChunkMeta, *, include_usage: bool
) -> Events:
    """Yield the server-sent events of a chat: its chunks with the common keys, then `[DONE]`."""
    head = meta.as_wire("chat.completion.chunk")
    try:
        async for chunk in chunks:
            # The chunk without choices has the usage, which OpenAI's API sends only on request.
            if chunk["choices"] or include_usage:
                yield sse_event({**head, **chunk})
    except ApiError as error:
        yield sse_event(log_stream_error(error).as_wire())
        return
    yield DONE


async def _whole(pool: ModelPool, body: ChatRequest, context: RequestContext) -> dict[str, Any]:
    answer = await pool.answer(body, context)
    return await assemble(answer, ChunkMeta(answer.model, context.created))


def _as_chat(body: GenerateRequest) -> ChatRequest:
    messages = [{"role": "user", "content": body.prompt}]
    if body.system:
        messages.insert(0, {"role": "system", "content": body.system})
    kept = body.model_dump(exclude_unset=True, exclude={"prompt", "system", "stream"})
    return ChatRequest.model_validate({**kept, "messages": messages})
