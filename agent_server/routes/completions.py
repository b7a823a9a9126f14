"""POST /v1/completions."""

from __future__ import annotations

import uuid

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.completion import Head, gather
from agent_server.encoding import Whole
from agent_server.routes.common import Session, TheMind
from agent_server.routes.direct import DirectRoute
from agent_server.shapes import TextCompletion, answers
from agent_server.streaming import begin, unless_gone
from agent_server.text_completions import CompletionRequest, Renderer

router = APIRouter(prefix="/v1", route_class=DirectRoute)


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
