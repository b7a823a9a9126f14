"""/v1/responses: answers as items, stored so that a conversation can continue from them.

Sources: https://platform.openai.com/docs/api-reference/responses and
https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.engine_protocol import Chunk
from agent_server.errors import ApiError, InvalidRequest, NotFound
from agent_server.http.responses import Events, log_stream_error, respond, sse_event, to_json
from agent_server.metering.request_context import HEADERS
from agent_server.routes.dependencies import BodyRoute, Context, Server
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer
from agent_server.schemas.openapi import ERRORS, DeletedResponse, answers
from agent_server.schemas.responses import ITEMS, Item, ResponseRequest, as_messages
from agent_server.server_state import StoredResponse
from storage.usage.usage import TokenUsage

router = APIRouter(prefix="/v1/responses", route_class=BodyRoute, responses=ERRORS)

OBJECT = "https://platform.openai.com/docs/api-reference/responses/object"

NOT_FOUND_REASONS = (
    "here: it was never stored, was deleted, was evicted by newer ones, or was lost when the"
    " process that stored it ended"
)
"""Reasons for an unknown id."""


@router.post("", responses=answers(OBJECT, stream=True), openapi_extra=HEADERS)
async def create(
    request: Request, body: ResponseRequest, server: Server, context: Context
) -> Response:
    """Answer an input, as one response or as a stream of events."""
    owner, response_id = context.key.name, f"resp_{uuid.uuid4().hex}"
    before = None
    if (previous := body.previous_response_id) is not None:
        before = server.responses.get(owner, previous)
        if before is None:
            raise InvalidRequest(
                f"there is no response {previous!r} to follow {NOT_FOUND_REASONS}",
                param="previous_response_id",
                code="previous_response_not_found",
            )
    history = json.loads(before.messages) if before else []
    # A continued conversation keeps its session, and so the engine that has cached its prompt.
    context = context.in_session(
        body.prompt_cache_key or (before.session if before else response_id)
    )
    session = context.session or response_id

    def store_response(answer: ResponseBuilder) -> None:
        if body.store is not False:
            messages = to_json([*history, *body.messages(), *as_messages(answer.items())])
            stored = StoredResponse(response_id, to_json(answer.as_wire()), messages, session)
            server.responses.save(owner, stored)

    def builder(answer: ModelAnswer) -> ResponseBuilder:
        meta = ChunkMeta(answer.model, context.created, response_id)
        return ResponseBuilder(body, meta, store_response)

    async def start() -> ModelAnswer:
        try:
            return await server.pool.answer(body.as_chat(history), context)
        except InvalidRequest as error:
            # The messages were built from `input`, the only field of the two that the client sent.
            if error.param and error.param.startswith("messages"):
                error.param = "input"
            raise

    return await respond(request, start(), builder, stream=body.stream)


@router.get("/{identity}", responses=answers(OBJECT))
async def retrieve(
    identity: str, server: Server, context: Context, stream: bool = False
) -> Response:
    """Return a stored response."""
    if stream:
        raise InvalidRequest("a response that is complete is not streamed again", param="stream")
    stored = server.responses.get(context.key.name, identity)
    if stored is None:
        raise _not_found(identity)
    return Response(stored.response, media_type="application/json")


@router.delete("/{identity}")
async def delete(identity: str, server: Server, context: Context) -> DeletedResponse:
    """Delete a stored response, with its copy of the conversation that led to it."""
    if not server.responses.delete(context.key.name, identity):
        raise _not_found(identity)
    return DeletedResponse(id=identity)


def _not_found(identity: str) -> NotFound:
    return NotFound(
        f"there is no response {identity!r} {NOT_FOUND_REASONS}",
        param="response_id",
        code="response_not_found",
    )


Event = dict[str, Any]

INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons of an incomplete answer: from the engine's `finish_reason` to this API's."""

DELTA_EVENTS = {
    "message": "output_text",
    "reasoning": "reasoning_text",
    "function_call": "function_call_arguments",
}
"""The part of the event names between `response.` and `.delta` or `.done`, by kind of item."""


@dataclass(slots=True)
class OutputItem:
    """An item under construction: a message, reasoning or a tool call; `call` is the index of its
    tool call, None for other kinds."""

    kind: str
    call: int | None
    item: dict[str, Any]
    text: str = ""
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def begin(cls, kind: str, call: Mapping[str, Any] | None) -> OutputItem:
        """Return an empty item with a new id; `call` is the first piece of a tool call."""
        common = {"type": kind, "status": "in_progress"}
        if call is None:
            prefix = "rs" if kind == "reasoning" else "msg"
            more: dict[str, Any] = {"summary": []} if kind == "reasoning" else {"role": "assistant"}
            item = {"id": f"{prefix}_{uuid.uuid4().hex}", **common, **more, "content": []}
            return cls(kind, None, item)
        name = (call.get("function") or {}).get("name") or ""
        call_id = call.get("id") or f"call_{uuid.uuid4().hex}"
        begun = {"call_id": call_id, "name": name, "arguments": ""}
        return cls(kind, call.get("index", 0), {"id": f"fc_{uuid.uuid4().hex}", **common, **begun})

    def end(self, status: str) -> None:
        """Complete the item with the text that was appended."""
        self.item["status"] = status
        if self.call is None:
            self.item["content"] = [self.part(self.text)]
        else:
            self.item["arguments"] = self.text

    def part(self, text: str) -> dict[str, Any]:
        """Return the item's only content part, with `text`."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {
            "type": "output_text", "text": text, "annotations": [],
            "logprobs": self.logprobs if text else [],
        }  # fmt: skip


class ResponseBuilder:
    """Builds one response.

    `done` is called with the builder once the response is complete, before its client is told so.
    """

    def __init__(
        self, request: ResponseRequest, meta: ChunkMeta, done: Callable[[ResponseBuilder], None]
    ) -> None:
        self._request = request
        self._meta = meta
        self._done = done
        self._sequence = 0
        self._open: OutputItem | None = None
        self._items: list[dict[str, Any]] = []
        self._finish = "stop"
        self._status = "in_progress"
        self._ended = 0
        self._error: dict[str, Any] | None = None
        self._usage: TokenUsage | None = None

    async def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Consume all chunks and return the response. Raises ApiError."""
        async with aclosing(answer):
            async for chunk in answer:
                for _ in self._on_chunk(chunk):
                    pass
        for _ in self._end():
            pass
        self._done(self)
        return self.as_wire()

    async def events(self, chunks: AsyncIterable[Chunk]) -> Events:
        """Yield the events of a stream; an ApiError becomes the event `response.failed`."""
        try:
            for kind in ("response.created", "response.in_progress"):
                yield sse_event(self._event(kind, response=self.as_wire()), kind)
            async for chunk in chunks:
                for made in self._on_chunk(chunk):
                    yield sse_event(made, made["type"])
            last = list(self._end())
            self._done(self)
        except ApiError as error:
            log_stream_error(error)
            self._status = "failed"
            self._error = {"code": "server_error", "message": error.message}
            last = [self._event("response.failed", response=self.as_wire())]
        for made in last:
            yield sse_event(made, made["type"])

    def as_wire(self) -> dict[str, Any]:
        """Return the response as far as it has been built."""
        incomplete = INCOMPLETE_REASONS.get(self._finish) if self._status == "incomplete" else None
        return {
            "id": self._meta.id,
            "object": "response",
            "created_at": self._meta.created,
            "completed_at": self._ended if self._status == "completed" else None,
            "status": self._status,
            "error": self._error,
            "incomplete_details": {"reason": incomplete} if incomplete else None,
            "model": self._meta.model,
            "output": self._items,
            "usage": _usage(self._usage) if self._usage else None,
            **self._request.request_echo(),
        }

    def items(self) -> list[Item]:
        """Return the answer as the items that a client may send back."""
        return ITEMS.validate_python(self._items)

    def _on_chunk(self, chunk: Chunk) -> Iterator[Event]:
        if chunk.get("usage"):
            self._usage = TokenUsage.from_wire(chunk["usage"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("reasoning_content"):
                yield from self._open_item("reasoning")
                yield from self._add_text(delta["reasoning_content"])
            if delta.get("content"):
                yield from self._open_item("message")
                logprobs = (choice.get("logprobs") or {}).get("content")
                yield from self._add_text(delta["content"], logprobs or ())
            for call in delta.get("tool_calls") or ():
                yield from self._open_item("function_call", call)
                yield from self._add_text((call.get("function") or {}).get("arguments") or "")
            self._finish = choice.get("finish_reason") or self._finish

    def _open_item(self, kind: str, call: Mapping[str, Any] | None = None) -> Iterator[Event]:
        """Start an item, unless the open one continues; items are not interleaved in this API."""
        index = None if call is None else call.get("index", 0)
        if self._open and (self._open.kind, self._open.call) == (kind, index):
            return
        yield from self._close("completed")
        self._open = OutputItem.begin(kind, call)
        self._items.append(self._open.item)
        yield self._item_event("added", {**self._open.item})
        if call is None:
            part = self._open.part("")
            yield self._event("response.content_part.added", **self._position(), part=part)

    def _add_text(self, text: str, logprobs: Iterable[Mapping[str, Any]] = ()) -> Iterator[Event]:
        item = self._open
        if item is None or not text:
            return
        item.text += text
        newest = []
        for entry in logprobs:
            token, *tops = (
                {
                    "token": each["token"],
                    "bytes": each.get("bytes") or [],
                    "logprob": each["logprob"],
                }
                for each in (entry, *(entry.get("top_logprobs") or ()))
            )
            newest.append({**token, "top_logprobs": tops})
        item.logprobs += newest
        extra = {"logprobs": newest} if item.kind == "message" else {}
        kind = f"response.{DELTA_EVENTS[item.kind]}.delta"
        yield self._event(kind, **self._position(), delta=text, **extra)

    def _close(self, status: str) -> Iterator[Event]:
        item = self._open
        if item is None:
            return
        item.end(status)
        place, done = self._position(), f"response.{DELTA_EVENTS[item.kind]}.done"
        if item.call is not None:
            yield self._event(done, **place, arguments=item.text, name=item.item["name"])
        else:
            extra = {"logprobs": item.logprobs} if item.kind == "message" else {}
            yield self._event(done, **place, text=item.text, **extra)
            part = item.item["content"][0]
            yield self._event("response.content_part.done", **place, part=part)
        yield self._item_event("done", item.item)
        self._open = None

    def _end(self) -> Iterator[Event]:
        status = "incomplete" if self._finish in INCOMPLETE_REASONS else "completed"
        yield from self._close(status)
        self._status = status
        self._ended = int(time.time())
        yield self._event(f"response.{status}", response=self.as_wire())

    def _item_event(self, step: str, item: Mapping[str, Any]) -> Event:
        kind = f"response.output_item.{step}"
        return self._event(kind, output_index=len(self._items) - 1, item=item)

    def _position(self) -> dict[str, Any]:
        """Return the place of the open item's text in the response."""
        place = {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}
        is_call = self._open is not None and self._open.call is not None
        return place if is_call else {**place, "content_index": 0}

    def _event(self, kind: str, **rest: Any) -> Event:
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence - 1, **rest}


def _usage(usage: TokenUsage) -> dict[str, Any]:
    """Return the usage object. Engines do not report how many tokens were reasoning."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
