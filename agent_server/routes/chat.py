"""POST /v1/chat/completions, /v1/completions and the plainer POST /v1/generate."""

from __future__ import annotations

import uuid
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.http.json_encoding import Whole
from agent_server.http.streaming import begin, chat_events, unless_gone
from agent_server.routes.dependencies import Session, TheMind
from agent_server.routes.fast_route import DirectRoute
from agent_server.schemas.chat import ChatRequest, GenerateRequest
from agent_server.schemas.chat_answer import Head, gather
from agent_server.schemas.completions import CompletionRequest, Renderer
from agent_server.schemas.responses import ChatCompletion, Generated, TextCompletion, answers

router = APIRouter(prefix="/v1", route_class=DirectRoute)


@router.post(
    "/chat/completions", response_model=None, responses=answers(ChatCompletion, stream=True)
)
async def chat(request: Request, body: ChatRequest, mind: TheMind, session: Session) -> Response:
    """Answer a conversation, as one object or as a stream of chunks."""
    head = Head(mind.name, watched=bool(body.stream))
    chunks = mind.answer(body, head, session or body.prompt_cache_key)
    if body.stream:
        render = partial(chat_events, include_usage=body.include_usage)
        return await begin(request, chunks, render)
    return Whole(await unless_gone(request.receive, gather(chunks, head)))


@router.post("/generate", response_model=None, responses=answers(Generated))
async def generate(
    request: Request, body: GenerateRequest, mind: TheMind, session: Session
) -> Response:
    """Answer one prompt with one text."""
    head = Head(mind.name, watched=False)
    chunks = mind.answer(_as_chat(body), head, session)
    whole = await unless_gone(request.receive, gather(chunks, head))
    choice = whole["choices"][0]
    return Whole(
        {
            "id": head.id,
            "model": head.model,
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
    mind: TheMind,
    session: Session,
) -> Response:
    """Continue one or more bare texts."""
    head = Head(mind.name, id=f"cmpl-{uuid.uuid4().hex}")
    renderer = Renderer(body, head)
    chunks = mind.complete(body, head, session)
    if body.stream:
        return await begin(request, chunks, renderer.events)
    return Whole(renderer.whole(await unless_gone(request.receive, gather(chunks, head))))
