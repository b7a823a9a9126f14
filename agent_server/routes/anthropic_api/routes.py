"""POST /v1/messages and /v1/messages/count_tokens, in the form of Anthropic's API."""

from __future__ import annotations

import uuid

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.http.json_encoding import Whole
from agent_server.http.streaming import begin, unless_gone
from agent_server.routes.anthropic_api.builder import Message
from agent_server.routes.anthropic_api.schemas import Conversation, MessagesRequest
from agent_server.routes.anthropic_api.translate import as_chat, as_count
from agent_server.routes.dependencies import Session, TheMind
from agent_server.schemas.chat_answer import Head, gather
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
    request: Request, body: MessagesRequest, mind: TheMind, session: Session
) -> Response:
    """Answer a conversation, as one message or as a stream of events."""
    head = Head(mind.name, id=f"msg_{uuid.uuid4().hex}")
    message = Message(head, thinking=body.shows_thinking)
    chunks = mind.answer(as_chat(body), head, session)
    if body.stream:
        return await begin(request, chunks, message.events)
    return Whole(message.whole(await unless_gone(request.receive, gather(chunks, head))))


@router.post("/count_tokens", response_model=None, responses=answers(InputTokens))
async def count_tokens(body: Conversation, mind: TheMind) -> Response:
    """Count the tokens that this conversation would send to the engine."""
    return Whole({"input_tokens": (await mind.count(as_count(body))).count})
