"""Builder of answers of the Responses API: a response of items, or the events of its stream.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from agent_server.engine_protocol import Chunk
from agent_server.errors import ApiError
from agent_server.http.responses import Events, log_stream_error, sse_event
from agent_server.routes.responses_api.output_item import (
    DELTA_EVENTS,
    OutputItem,
    logprob,
    new_item,
)
from agent_server.routes.responses_api.schemas import ResponseRequest
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer
from storage.usage.usage import TokenUsage

Event = dict[str, Any]

INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons of an incomplete answer: from the engine's `finish_reason` to this API's."""


class ResponseBuilder:
    """Builds one response.

    `done` is awaited with the builder once the response is complete, before its client is told so.
    """

    def __init__(
        self,
        request: ResponseRequest,
        meta: ChunkMeta,
        done: Callable[[ResponseBuilder], Awaitable[None]],
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
        await self._done(self)
        return self.as_wire()

    async def events(self, chunks: AsyncIterable[Chunk]) -> Events:
        """Yield the events of a stream; an ApiError becomes the event `response.failed`."""
        try:
            for made in self._beginning():
                yield sse_event(made, made["type"])
            async for chunk in chunks:
                for made in self._on_chunk(chunk):
                    yield sse_event(made, made["type"])
            last = list(self._end())
            await self._done(self)
        except ApiError as error:
            last = [self._failure_event(log_stream_error(error))]
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

    def message(self) -> list[dict[str, Any]]:
        """Return the answer as chat messages, for a request that continues from it."""
        said: dict[str, Any] = {"role": "assistant", "content": None}
        for item in self._items:
            if item["type"] == "message":
                said["content"] = item["content"][0]["text"]
            elif item["type"] == "reasoning":
                said["reasoning_content"] = item["content"][0]["text"]
            else:
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                said.setdefault("tool_calls", []).append(call)
        if said["content"] is None and "tool_calls" not in said:
            said["content"] = ""
        return [said]

    def _beginning(self) -> Iterator[Event]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self.as_wire())

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
        index = call.get("index", 0) if call else None
        if self._open and (self._open.kind, self._open.call) == (kind, index):
            return
        yield from self._close("completed")
        self._open = OutputItem(kind, index, new_item(kind, call))
        self._items.append(self._open.item)
        # The event that adds an item shows it without parts: these are added by their own events.
        bare = {**self._open.item, "content": []} if kind != "function_call" else self._open.item
        yield self._item_event("added", bare)
        if kind != "function_call":
            part = self._open.part("")
            yield self._event("response.content_part.added", **self._position(part=True), part=part)

    def _add_text(self, text: str, logprobs: Any = ()) -> Iterator[Event]:
        item = self._open
        if item is None or not text:
            return
        item.add(text, [logprob(entry) for entry in logprobs])
        extra = {"logprobs": item.newest} if item.kind == "message" else {}
        place = self._position(part=item.kind != "function_call")
        yield self._event(f"response.{DELTA_EVENTS[item.kind]}.delta", **place, delta=text, **extra)

    def _close(self, status: str) -> Iterator[Event]:
        item = self._open
        if item is None:
            return
        item.end(status)
        place = self._position(part=item.kind != "function_call")
        done = f"response.{DELTA_EVENTS[item.kind]}.done"
        if item.kind == "function_call":
            name = item.item["name"]
            yield self._event(done, **place, arguments=item.text, name=name)
        elif item.kind == "reasoning":
            yield self._event(done, **place, text=item.text)
        else:
            yield self._event(done, **place, text=item.text, logprobs=item.logprobs)
        if item.kind != "function_call":
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

    def _failure_event(self, error: ApiError) -> Event:
        self._status = "failed"
        self._error = {"code": "server_error", "message": error.message}
        return self._event("response.failed", response=self.as_wire())

    def _item_event(self, step: str, item: Mapping[str, Any]) -> Event:
        kind = f"response.output_item.{step}"
        return self._event(kind, output_index=len(self._items) - 1, item=item)

    def _position(self, *, part: bool) -> dict[str, Any]:
        place = {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}
        return {**place, "content_index": 0} if part else place

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
