"""The events of Anthropic's Messages API as chunks of a chat.

Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_server.engines.base import Chunk
from agent_server.engines.faults import fault_event
from agent_server.usage import Usage

Event = Mapping[str, Any]

FINISHED = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Why it ended, where it did not simply stop."""


class MessageStream:
    """Reads one message. `done` when it has ended as it should."""

    def __init__(self) -> None:
        self.done = False
        self._calls: dict[int, int] = {}
        self._usage: dict[str, int] = {}

    def chunk(self, event: Event) -> Chunk | None:
        """The chunk that `event` makes, if any. Raises ApiError for an error event."""
        kind = event.get("type")
        if kind == "error":
            raise fault_event(_mapping(event.get("error")))
        if kind == "message_start":
            self._count(_mapping(event.get("message")))
            return _said({"role": "assistant", "content": ""})
        if kind == "content_block_start":
            return self._begun(event)
        if kind == "content_block_delta":
            return self._more(event)
        if kind == "message_delta":
            self._count(event)
            reason = _mapping(event.get("delta")).get("stop_reason")
            return _said({}, FINISHED.get(str(reason), "stop")) if reason else None
        if kind == "message_stop":
            self.done = True
            return {"choices": [], "usage": self._total().as_wire()}
        return None

    def _begun(self, event: Event) -> Chunk | None:
        block = _mapping(event.get("content_block"))
        if block.get("type") != "tool_use":
            return None
        place = self._calls[event.get("index", 0)] = len(self._calls)
        function = {"name": block.get("name"), "arguments": ""}
        call = {"index": place, "id": block.get("id"), "type": "function", "function": function}
        return _said({"tool_calls": [call]})

    def _more(self, event: Event) -> Chunk | None:
        delta = _mapping(event.get("delta"))
        kind = delta.get("type")
        if kind == "text_delta":
            return _said({"content": delta.get("text")})
        if kind == "thinking_delta":
            return _said({"reasoning_content": delta.get("thinking")})
        if kind == "input_json_delta":
            place = self._calls.get(event.get("index", 0), 0)
            part = {"index": place, "function": {"arguments": delta.get("partial_json")}}
            return _said({"tool_calls": [part]})
        return None

    def _count(self, holder: Event) -> None:
        counts = _mapping(holder.get("usage"))
        self._usage |= {key: n for key, n in counts.items() if isinstance(n, int)}

    def _total(self) -> Usage:
        """There what came from the cache and what went into it are counted beside the prompt."""
        cached = self._usage.get("cache_read_input_tokens", 0)
        fresh = self._usage.get("input_tokens", 0)
        written = self._usage.get("cache_creation_input_tokens", 0)
        return Usage(fresh + written + cached, self._usage.get("output_tokens", 0), cached)


def _said(delta: dict[str, Any], finish: str | None = None) -> Chunk:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _mapping(value: Any) -> Event:
    return value if isinstance(value, Mapping) else {}
