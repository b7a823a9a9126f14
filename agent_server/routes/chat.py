"""POST /v1/chat/completions, /v1/completions and the plainer POST /v1/generate."""

from __future__ import annotations

import uuid
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.http.json_encoding import JsonBody
from agent_server.http.streaming import cancel_on_disconnect, chat_events, start_stream
from agent_server.routes.dependencies import ModelPoolDep, Session
from agent_server.routes.fast_route import FastRoute
from agent_server.schemas.chat import ChatRequest, GenerateRequest
from agent_server.schemas.chat_answer import ChunkMeta, assemble
from agent_server.schemas.completions import CompletionRenderer, CompletionRequest
from agent_server.schemas.responses import ChatCompletion, GenerateResponse, TextCompletion, answers

router = APIRouter(prefix="/v1", route_class=FastRoute)


@router.post(
    "/chat/completions", response_model=None, responses=answers(ChatCompletion, stream=True)
)
async def chat(
    request: Request, body: ChatRequest, pool: ModelPoolDep, session: Session
) -> Response:
    """Answer a conversation, as one object or as a stream of chunks."""
    meta = ChunkMeta(pool.name, watched=bool(body.stream))
    chunks = pool.answer(body, meta, session or body.prompt_cache_key)
    if body.stream:
        render = partial(chat_events, include_usage=body.include_usage)
        return await start_stream(request, chunks, render)
    return JsonBody(await cancel_on_disconnect(request.receive, assemble(chunks, meta)))


@router.post("/generate", response_model=None, responses=answers(GenerateResponse))
async def generate(
    request: Request, body: GenerateRequest, pool: ModelPoolDep, session: Session
) -> Response:
    """Answer one prompt with one text."""
    meta = ChunkMeta(pool.name, watched=False)
    chunks = pool.answer(_as_chat(body), meta, session)
    whole = await cancel_on_disconnect(request.receive, assemble(chunks, meta))
    choice = whole["choices"][0]
    return JsonBody(
        {
            "id": meta.id,
            "model": meta.model,
            "text": choice["message"]["content"],
            "finish_reason": choice["finish_reason"],
            "usage": whole["usage"],
        }
    )


def _as_chat(body: GenerateRequest) -> ChatRequest:
    messages = [{"role": "user", "content": body.prompt}]
    if body.system:
        messages.insert(0, {"role": "system", "content": body.system})
    kept = body.model_dump(exclude_unset=True, exclude={"prompt", "system", "stream"})
    return ChatRequest.model_validate({**kept, "messages": messages})


@router.post("/completions", response_model=None, responses=answers(TextCompletion, stream=True))
async def completions(
    request: Request,
    body: CompletionRequest,
    pool: ModelPoolDep,
    session: Session,
) -> Response:
    """Continue one or more bare texts."""
    meta = ChunkMeta(pool.name, id=f"cmpl-{uuid.uuid4().hex}")
    renderer = CompletionRenderer(body, meta)
    chunks = pool.complete(body, meta, session)
    if body.stream:
        return await start_stream(request, chunks, renderer.events)
    return JsonBody(
        renderer.whole(await cancel_on_disconnect(request.receive, assemble(chunks, meta)))
    )
