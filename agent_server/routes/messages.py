"""POST /v1/messages and /v1/messages/count_tokens, in the form of Anthropic's API.

Sources: https://docs.anthropic.com/en/api/messages and
https://docs.anthropic.com/en/api/messages-streaming
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.engine_protocol import Chunk
from agent_server.errors import ApiError, EngineUnavailable
from agent_server.http.responses import (
    Events,
    JsonBody,
    anthropic_error,
    log_stream_error,
    respond,
    sse_event,
)
from agent_server.metering.request_context import HEADERS
from agent_server.routes.dependencies import BodyRoute, Context, Server
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer, assemble
from agent_server.schemas.messages import CountTokensRequest, MessagesRequest
from agent_server.schemas.openapi import ANTHROPIC_ERRORS, InputTokens, answers
from storage.usage.usage import TokenUsage

router = APIRouter(prefix="/v1/messages", route_class=BodyRoute, responses=ANTHROPIC_ERRORS)


@router.post(
    "",
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


@router.post("/count_tokens", responses=answers(InputTokens))
async def count_tokens(
    request: Request, body: CountTokensRequest, server: Server, context: Context
) -> Response:
    """Count the tokens that a request with this conversation would send to the engine."""
    counted = await server.pool.count(body.as_tokenize(), context)
    estimated = {"estimated": True} if counted.is_estimate else {}
    return JsonBody({"input_tokens": counted.count} | estimated)


Event = dict[str, Any]

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


class MessageBuilder:
    """Builds one answer; reasoning is included only with `thinking`."""

    def __init__(self, meta: ChunkMeta, *, thinking: bool) -> None:
        self._meta = meta
        self._thinking = thinking
        self._blocks = 0
        self._open: tuple[str, int] | None = None  # kind of the open block, index of its tool call
        self._finish: Mapping[str, Any] = {}
        self._usage = TokenUsage()

    async def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return the message. Raises ApiError."""
        made = await assemble(answer, self._meta)
        choice, blocks = made["choices"][0], list[dict[str, Any]]()
        message = choice["message"]
        if self._thinking and message.get("reasoning_content"):
            blocks.append(_thinking_block(message["reasoning_content"]))
        if message["content"]:
            blocks.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls") or ():
            function, value = call["function"], None
            with suppress(ValueError):
                value = json.loads(function["arguments"] or "{}")
            if not isinstance(value, dict):
                text = "the model wrote arguments of a call that are not a JSON object"
                raise EngineUnavailable(text)
            blocks.append({**_tool_use_block(call["id"], function["name"]), "input": value})
        usage = _usage(TokenUsage.from_wire(made["usage"] or {}))
        return {**self._start(), "content": blocks, **_stop(choice), "usage": usage}

    async def events(self, chunks: AsyncIterable[Chunk]) -> Events:
        """Yield the events of a stream. Its usage is known only at the end (`message_delta`)."""
        try:
            empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
            message = {**self._start(), **empty, "usage": _usage(TokenUsage())}
            yield sse_event({"type": "message_start", "message": message}, "message_start")
            yield sse_event({"type": "ping"}, "ping")
            async for chunk in chunks:
                for made in self._on_chunk(chunk):
                    yield sse_event(made, made["type"])
            for made in self._close():
                yield sse_event(made, made["type"])
            delta = {"delta": _stop(self._finish), "usage": _usage(self._usage)}
            yield sse_event({"type": "message_delta", **delta}, "message_delta")
            yield sse_event({"type": "message_stop"}, "message_stop")
        except ApiError as error:
            yield sse_event(anthropic_error(log_stream_error(error)), "error")

    def _start(self) -> dict[str, Any]:
        return {"id": self._meta.id, "type": "message", "role": "assistant",
                "model": self._meta.model}  # fmt: skip

    def _on_chunk(self, chunk: Chunk) -> Iterator[Event]:
        if chunk.get("usage"):
            self._usage = TokenUsage.from_wire(chunk["usage"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            thought, text = delta.get("reasoning_content"), delta.get("content")
            if thought and self._thinking:
                yield from self._open_block(("thinking", 0), _thinking_block(""))
                yield self._delta({"type": "thinking_delta", "thinking": thought})
            if text:
                yield from self._open_block(("text", 0), {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                begun = _tool_use_block(call.get("id") or "", function.get("name") or "")
                yield from self._open_block(("tool_use", call.get("index", 0)), begun)
                if arguments := function.get("arguments"):
                    yield self._delta({"type": "input_json_delta", "partial_json": arguments})
            if choice.get("finish_reason"):
                self._finish = choice

    def _open_block(self, block: tuple[str, int], begun: dict[str, Any]) -> Iterator[Event]:
        """Open `block` and close the one before, unless `block` is open already."""
        if self._open == block:
            return
        yield from self._close()
        self._open = block
        self._blocks += 1
        yield {"type": "content_block_start", "index": self._blocks - 1, "content_block": begun}

    def _close(self) -> Iterator[Event]:
        if self._open is not None:
            yield {"type": "content_block_stop", "index": self._blocks - 1}
            self._open = None

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}


def _thinking_block(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": ""}


def _tool_use_block(call_id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def _stop(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stop reason. Only some engines report which stop sequence it was."""
    if isinstance(choice.get("stop_reason"), str):
        return {"stop_reason": "stop_sequence", "stop_sequence": choice["stop_reason"]}
    reason = STOP_REASONS.get(choice.get("finish_reason") or "stop", "end_turn")
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(usage: TokenUsage) -> dict[str, Any]:
    """Return the usage object; its `input_tokens` do not include the cached ones."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }
