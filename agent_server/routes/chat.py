"""POST /v1/chat/completions and the plainer POST /v1/generate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.engine_protocol import Chunk
from agent_server.http.responses import Events, openai_events, respond
from agent_server.metering.request_context import HEADERS
from agent_server.routes.dependencies import BodyRoute, Context, Server
from agent_server.schemas.chat import ChatRequest, GenerateRequest
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer, assemble
from agent_server.schemas.responses import ChatCompletion, GenerateResponse, answers

router = APIRouter(prefix="/v1", route_class=BodyRoute)


@router.post(
    "/chat/completions",
    response_model=None,
    responses=answers(ChatCompletion, stream=True),
    openapi_extra=HEADERS,
)
async def chat(request: Request, body: ChatRequest, server: Server, context: Context) -> Response:
    """Answer a conversation, as one object or as a stream of chunks."""
    context = context.in_session(body.prompt_cache_key)

    async def whole(answer: ModelAnswer) -> dict[str, Any]:
        return await assemble(answer, ChunkMeta(answer.model, context.created))

    def events(answer: ModelAnswer) -> Events:
        head = ChunkMeta(answer.model, context.created).as_wire("chat.completion.chunk")

        def convert(chunk: Chunk) -> Iterable[Chunk]:
            # The chunk without choices has the usage, which OpenAI's API sends only on request.
            return ({**head, **chunk},) if chunk["choices"] or body.include_usage else ()

        return openai_events(answer, convert)

    starting = server.pool.answer(body, context)
    return await respond(request, starting, whole, events if body.stream else None)


@router.post(
    "/generate", response_model=None, responses=answers(GenerateResponse), openapi_extra=HEADERS
)
async def generate(
    request: Request, body: GenerateRequest, server: Server, context: Context
) -> Response:
    """Answer one prompt with one text."""

    async def whole(answer: ModelAnswer) -> dict[str, Any]:
        made = await assemble(answer, ChunkMeta(answer.model, context.created))
        choice = made["choices"][0]
        return {
            "id": made["id"],
            "model": made["model"],
            "text": choice["message"]["content"],
            "finish_reason": choice["finish_reason"],
            "usage": made["usage"],
        }

    messages = [{"role": "user", "content": body.prompt}]
    if body.system:
        messages.insert(0, {"role": "system", "content": body.system})
    kept = body.model_dump(exclude_unset=True, exclude={"prompt", "system", "stream"})
    asked = ChatRequest.model_validate({**kept, "messages": messages})
    return await respond(request, server.pool.answer(asked, context), whole)
