"""An answer as the Responses API gives it: a response of items, and the events of its making.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from itertools import chain
from typing import Any

from agent_server.engine_protocol import Chunk, Chunks
from agent_server.errors import ApiError
from agent_server.http.json_encoding import event
from agent_server.http.streaming import Events, broken
from agent_server.routes.responses_api.output_item import DELTAS, Making, begun, logprob
from agent_server.routes.responses_api.schemas import ResponseRequest
from agent_server.schemas.chat_answer import Head
from agent_server.usage import Usage

Event = dict[str, Any]

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer ended too early: the engine's word and this API's."""


class Answer:
    """One response while it is made; `done` is called with it when it is complete."""

    def __init__(
        self, request: ResponseRequest, head: Head, done: Callable[[Answer], None]
    ) -> None:
        self._request = request
        self._head = head
        self._done = done
        self._sequence = 0
        self._open: Making | None = None
        self._items: list[dict[str, Any]] = []
        self._finish = "stop"
        self._status = "in_progress"
        self._error: dict[str, Any] | None = None
        self._usage: Usage | None = None

    async def whole(self, chunks: Chunks) -> dict[str, Any]:
        """Take all chunks; returns the response."""
        async with aclosing(chunks):
            async for chunk in chunks:
                for _ in self._take(chunk):
                    pass
        for _ in self._end():
            pass
        return self.as_wire()

    async def events(self, first: Chunk, chunks: Chunks) -> Events:
        """The events of a stream."""
        try:
            for made in chain(self._beginning(), self._take(first)):
                yield event(made, made["type"])
            async for chunk in chunks:
                for made in self._take(chunk):
                    yield event(made, made["type"])
            last = list(self._end())
        except ApiError as error:
            last = [self._failed(broken(error))]
        for made in last:
            yield event(made, made["type"])

    def as_wire(self) -> dict[str, Any]:
        """The response as far as it has come."""
        incomplete = INCOMPLETE.get(self._finish) if self._status == "incomplete" else None
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "completed_at": int(time.time()) if self._status == "completed" else None,
            "status": self._status,
            "error": self._error,
            "incomplete_details": {"reason": incomplete} if incomplete else None,
            "model": self._head.model,
            "output": self._items,
            "usage": _usage(self._usage) if self._usage else None,
            **self._request.echoed(),
        }

    def message(self) -> list[dict[str, Any]]:
        """The answer as chat messages, for the request that follows it."""
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

    def _take(self, chunk: Chunk) -> Iterator[Event]:
        if chunk.get("usage"):
            self._usage = Usage.from_wire(chunk["usage"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("reasoning_content"):
                yield from self._in("reasoning")
                yield from self._more(delta["reasoning_content"])
            if delta.get("content"):
                yield from self._in("message")
                logprobs = (choice.get("logprobs") or {}).get("content")
                yield from self._more(delta["content"], logprobs or ())
            for call in delta.get("tool_calls") or ():
                yield from self._in("function_call", call)
                yield from self._more((call.get("function") or {}).get("arguments") or "")
            self._finish = choice.get("finish_reason") or self._finish

    def _in(self, kind: str, call: Mapping[str, Any] | None = None) -> Iterator[Event]:
        """Open an item, unless the one that is open goes on."""
        index = call.get("index", 0) if call else None
        if self._open and (self._open.kind, self._open.call) == (kind, index):
            return
        yield from self._close("completed")
        self._open = Making(kind, index, begun(kind, call))
        self._items.append(self._open.item)
        bare = {**self._open.item, "content": []} if kind != "function_call" else self._open.item
        yield self._item_event("added", bare)
        if kind != "function_call":
            part = self._open.part("")
            yield self._event("response.content_part.added", **self._place(part=True), part=part)

    def _more(self, text: str, logprobs: Any = ()) -> Iterator[Event]:
        making = self._open
        if making is None or not text:
            return
        making.add(text, [logprob(entry) for entry in logprobs])
        extra = {"logprobs": making.newest} if making.kind == "message" else {}
        place = self._place(part=making.kind != "function_call")
        yield self._event(f"response.{DELTAS[making.kind]}.delta", **place, delta=text, **extra)

    def _close(self, status: str) -> Iterator[Event]:
        making = self._open
        if making is None:
            return
        making.end(status)
        place = self._place(part=making.kind != "function_call")
        done = f"response.{DELTAS[making.kind]}.done"
        if making.kind == "function_call":
            name = making.item["name"]
            yield self._event(done, **place, arguments=making.text, name=name)
        elif making.kind == "reasoning":
            yield self._event(done, **place, text=making.text)
        else:
            yield self._event(done, **place, text=making.text, logprobs=making.logprobs)
        if making.kind != "function_call":
            part = making.item["content"][0]
            yield self._event("response.content_part.done", **place, part=part)
        yield self._item_event("done", making.item)
        self._open = None

    def _end(self) -> Iterator[Event]:
        status = "incomplete" if self._finish in INCOMPLETE else "completed"
        yield from self._close(status)
        self._status = status
        self._done(self)
        yield self._event(f"response.{status}", response=self.as_wire())

    def _failed(self, error: ApiError) -> Event:
        self._status = "failed"
        self._error = {"code": "server_error", "message": error.message}
        return self._event("response.failed", response=self.as_wire())

    def _item_event(self, step: str, item: Mapping[str, Any]) -> Event:
        kind = f"response.output_item.{step}"
        return self._event(kind, output_index=len(self._items) - 1, item=item)

    def _place(self, *, part: bool) -> dict[str, Any]:
        place = {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}
        return {**place, "content_index": 0} if part else place

    def _event(self, kind: str, **rest: Any) -> Event:
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence - 1, **rest}


def _usage(usage: Usage) -> dict[str, Any]:
    """Engines do not tell how many tokens were thoughts."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
