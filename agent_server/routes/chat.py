"""POST /v1/chat/completions and the plainer POST /v1/generate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.engine_protocol import Chunk
from agent_server.http.responses import (
    Events,
    JsonBody,
    cancel_on_disconnect,
    openai_events,
    respond,
)
from agent_server.metering.request_context import HEADERS
from agent_server.routes.dependencies import BodyRoute, Context, Server
from agent_server.schemas.chat import ChatRequest, GenerateRequest
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer, assemble
from agent_server.schemas.openapi import ERRORS, GenerateResponse, answers

router = APIRouter(prefix="/v1", route_class=BodyRoute, responses=ERRORS)


@router.post(
    "/chat/completions",
    responses=answers("https://platform.openai.com/docs/api-reference/chat/object", stream=True),
    openapi_extra=HEADERS,
)
async def chat(request: Request, body: ChatRequest, server: Server, context: Context) -> Response:
    """Answer a conversation, as one object or as a stream of chunks."""
    context = context.in_session(body.prompt_cache_key)
    return await respond(
        request,
        server.pool.answer(body, context),
        lambda answer: ChatRenderer(body, ChunkMeta(answer.model, context.created)),
        stream=body.stream,
    )


@dataclass(frozen=True, slots=True)
class ChatRenderer:
    """Adds the keys of OpenAI's objects to the chunks of an answer, or assembles them."""

    request: ChatRequest
    meta: ChunkMeta

    async def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return the `chat.completion` object."""
        return await assemble(answer, self.meta)

    def events(self, answer: ModelAnswer) -> Events:
        """Yield `chat.completion.chunk` objects."""
        head = self.meta.as_wire("chat.completion.chunk")

        def convert(chunk: Chunk) -> Iterable[Chunk]:
            # The chunk without choices has the usage, which OpenAI's API sends only on request.
            is_wanted = chunk["choices"] or self.request.include_usage
            return ({**head, **chunk},) if is_wanted else ()

        return openai_events(answer, convert)


@router.post("/generate", responses=answers(GenerateResponse), openapi_extra=HEADERS)
async def generate(
    request: Request, body: GenerateRequest, server: Server, context: Context
) -> Response:
    """Answer one prompt with one text."""
    messages = [{"role": "user", "content": body.prompt}]
    if body.system:
        messages.insert(0, {"role": "system", "content": body.system})
    kept = body.model_dump(exclude_unset=True, exclude={"prompt", "system", "stream"})
    asked = ChatRequest.model_validate({**kept, "messages": messages})

    async def complete() -> dict[str, Any]:
        answer = await server.pool.answer(asked, context)
        made = await assemble(answer, ChunkMeta(answer.model, context.created))
        choice = made["choices"][0]
        return {
            "id": made["id"],
            "model": made["model"],
            "text": choice["message"]["content"],
            "finish_reason": choice["finish_reason"],
            "usage": made["usage"],
        }

    return JsonBody(await cancel_on_disconnect(request.receive, complete()))
