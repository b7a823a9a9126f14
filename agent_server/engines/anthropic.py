"""An engine that speaks Anthropic's Messages API: chats are translated to it, its events to chunks.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from agent_server.engine_protocol import Chunk, Chunks, ModelInfo, TokenCount, chunk_of
from agent_server.engines.errors import event_to_api_error
from agent_server.engines.model_descriptions import coalesce_info, info_from_anthropic
from agent_server.engines.upstream_pool import (
    LINGER,
    MODELS_PATH,
    Upstream,
    UpstreamConfig,
    UpstreamEngine,
    UpstreamRequest,
    parse_json,
)
from agent_server.errors import (
    EngineMisconfigured,
    EngineUnavailable,
    InvalidRequest,
    Unsupported,
)
from agent_server.schemas.chat import plain
from storage.usage.usage import TokenUsage

VERSION = "2023-06-01"
CONTEXT_TOKENS = 200_000
"""Context window in tokens of a model whose card names none."""

ANY_MODEL = ModelInfo(CONTEXT_TOKENS, tools=True, vision=True, embeddings=False, counts_tokens=True)

MAX_ANSWER_TOKENS = 8_192
"""Limit of an answer, which the API requires, for a model whose card has not been read."""

MAX_ANSWER_SHARE = 1 / 8
"""The share of the window for an answer: the API refuses prompts that leave no room for it."""


class AnthropicEngine(UpstreamEngine):
    """The models of one account; without a configured one the first that is listed is the
    default."""

    def __init__(self, config: UpstreamConfig) -> None:
        key = {"x-api-key": config.key} if config.key else {}
        super().__init__(config, {"anthropic-version": VERSION, **key})
        self._max_answer: dict[str | None, int] = {}

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the answer to a chat. Raises ApiError; Unsupported for a bare `prompt`."""
        if "prompt" in body:
            raise Unsupported("this model answers conversations only")
        named = self._named(body)
        limit = self._max_answer.get(named["model"], MAX_ANSWER_TOKENS)
        asked = {"max_tokens": limit, **as_messages_request(body), **named, "stream": True}
        answer = await self.send(
            UpstreamRequest("POST", "/v1/messages", asked, session, names_model=True)
        )
        message = MessageStream()
        try:
            while arrived := await answer.next_batch():
                for data in arrived:
                    event = parse_json(data)
                    if not isinstance(event, dict):
                        raise EngineUnavailable("the engine sent something that is not JSON")
                    if chunk := message.chunk(event):
                        yield chunk
                if message.is_complete:
                    answer.close(LINGER)
                    return
            # Only `message_stop` ends a message: without it the answer is incomplete.
            raise EngineUnavailable("the engine's answer broke off")
        finally:
            answer.close()

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count the tokens at the upstream, which reports neither their ids nor a limit."""
        if "prompt" in body:
            body = {**body, "messages": [{"role": "user", "content": body["prompt"]}]}
        asked = {**as_messages_request(body), **self._named(body)}
        answer = await self._ask_json(
            UpstreamRequest("POST", "/v1/messages/count_tokens", asked, names_model=True)
        )
        return TokenCount((), int(answer.get("input_tokens", 0)), None)

    async def model_info(self, model: str | None = None) -> ModelInfo:
        """Read the card of the model; what it lacks is what all models of the API have."""
        model = model or self._model

        async def ask(upstream: Upstream) -> ModelInfo:
            name = model or str((await self.cards(upstream))[0]["id"])
            card: Mapping[str, Any] = {}
            with suppress(EngineMisconfigured):  # an alias, or a server without cards
                path = f"{MODELS_PATH}/{quote(name, safe='')}"
                card = await self._ask_json(UpstreamRequest("GET", path), upstream)
            info = coalesce_info(info_from_anthropic(card), ANY_MODEL)
            longest = card.get("max_tokens")
            if isinstance(longest, int) and longest > 0:
                share = (info.context or CONTEXT_TOKENS) * MAX_ANSWER_SHARE
                self._max_answer[model] = min(longest, int(share))
            return replace(info, weights=name)

        return await self.try_each(ask)

    def _named(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"model": body.get("model") or self._model}


Body = Mapping[str, Any]
Event = Mapping[str, Any]

SHARED_FIELDS = ("max_tokens", "top_p", "top_k")
UNSUPPORTED_FIELDS = (
    "logprobs", "top_logprobs", "logit_bias", "min_p", "verbosity", "reasoning_effort",
    "frequency_penalty", "presence_penalty",
)  # fmt: skip
"""Fields without an equivalent in the Messages API: requests that use them are rejected."""


def as_messages_request(body: Body) -> dict[str, Any]:
    """Translate a chat body. Raises InvalidRequest for what the Messages API lacks."""
    for field in UNSUPPORTED_FIELDS:
        if body.get(field) not in (None, False):
            raise InvalidRequest(f"{field} is not supported by this model", param=field)
    if (body.get("n") or 1) > 1:
        raise InvalidRequest("this model gives one answer at a time", param="n")
    if (body.get("response_format") or {}).get("type", "text") != "text":
        raise InvalidRequest("this model cannot be held to a format", param="response_format")
    asked: dict[str, Any] = {key: body[key] for key in SHARED_FIELDS if key in body}
    # Consecutive messages of one role become one. So the results of parallel tool calls are all in
    # the one user message that follows the calls.
    spoken = (each for each in body["messages"] if each["role"] != "system")
    turns = itertools.groupby(
        spoken, lambda each: "assistant" if each["role"] == "assistant" else "user"
    )
    made = [(role, [block for each in turn for block in _blocks(each)]) for role, turn in turns]
    asked["messages"] = [{"role": role, "content": blocks} for role, blocks in made if blocks]
    # The API has one field for system text, so later system messages move to the front.
    rules = [plain(each["content"]) for each in body["messages"] if each["role"] == "system"]
    if system := "\n\n".join(rules):
        asked["system"] = system
    if "temperature" in body:
        asked["temperature"] = min(body["temperature"], 1)  # up to 2 here, up to 1 there
    if stop := body.get("stop"):
        asked["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if tools := body.get("tools"):
        asked["tools"] = []
        for function in (tool["function"] for tool in tools):
            schema = function.get("parameters") or {"type": "object", "properties": {}}
            described = {"name": function["name"], "input_schema": schema}
            if function.get("description"):
                described["description"] = function["description"]
            asked["tools"].append(described)
        choice = body.get("tool_choice") or "auto"
        if isinstance(choice, Mapping):
            chosen: dict[str, Any] = {"type": "tool", "name": choice["function"]["name"]}
        else:
            chosen = {"type": "any" if choice == "required" else choice}
        if choice != "none" and body.get("parallel_tool_calls") is False:
            chosen["disable_parallel_tool_use"] = True
        asked["tool_choice"] = chosen
    return asked


def _blocks(message: Body) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
        yield {**result, "content": plain(message["content"])}
        return
    content = message.get("content") or ()
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts: Sequence[Body] = content
    for part in parts:
        if part["type"] == "text" and part["text"].strip():  # the API rejects empty text blocks
            yield {"type": "text", "text": part["text"]}
        elif part["type"] == "image_url":
            source = {"type": "url", "url": part["image_url"].get("url", "")}
            if source["url"].startswith("data:"):
                kind, _, data = source["url"].removeprefix("data:").partition(";base64,")
                source = {"type": "base64", "media_type": kind, "data": data}
            yield {"type": "image", "source": source}
        elif part["type"] != "text":
            raise InvalidRequest(f"this model cannot take {part['type']}", param="messages")
    for call in message.get("tool_calls") or ():
        function = call["function"]
        try:
            value = json.loads(function["arguments"] or "{}")
        except ValueError:
            value = None
        if not isinstance(value, dict):
            # The API requires an object as `input`, even where the model's JSON was invalid.
            value = {"text": function["arguments"]}
        used = {"type": "tool_use", "id": call["id"], "name": function["name"]}
        yield {**used, "input": value}


FINISH_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Maps `stop_reason` to `finish_reason`; all others are "stop"."""


class MessageStream:
    """Translates the events of one message. `is_complete` once `message_stop` has arrived."""

    def __init__(self) -> None:
        self.is_complete = False
        self._calls: dict[int, int] = {}
        self._usage: dict[str, int] = {}

    def chunk(self, event: Event) -> Chunk | None:
        """Return the chunk for `event`, None if it has no equivalent. Raises ApiError for an
        `error` event."""
        kind = event.get("type")
        if kind == "error":
            raise event_to_api_error(_mapping(event.get("error")))
        if kind == "message_start":
            self._count(_mapping(event.get("message")))
            return chunk_of({"role": "assistant", "content": ""})
        if kind == "content_block_start":
            block = _mapping(event.get("content_block"))
            if block.get("type") != "tool_use":
                return None
            # Events number all content blocks, `tool_calls` only the calls.
            place = self._calls[event.get("index", 0)] = len(self._calls)
            function = {"name": block.get("name"), "arguments": ""}
            call = {"index": place, "id": block.get("id"), "type": "function", "function": function}
            return chunk_of({"tool_calls": [call]})
        if kind == "content_block_delta":
            delta = _mapping(event.get("delta"))
            if delta.get("type") == "text_delta":
                return chunk_of({"content": delta.get("text")})
            if delta.get("type") == "thinking_delta":
                return chunk_of({"reasoning_content": delta.get("thinking")})
            if delta.get("type") == "input_json_delta":
                place = self._calls.get(event.get("index", 0), 0)
                part = {"index": place, "function": {"arguments": delta.get("partial_json")}}
                return chunk_of({"tool_calls": [part]})
            return None
        if kind == "message_delta":
            self._count(event)
            reason = _mapping(event.get("delta")).get("stop_reason")
            return chunk_of({}, FINISH_REASONS.get(str(reason), "stop")) if reason else None
        if kind == "message_stop":
            self.is_complete = True
            # `input_tokens` excludes tokens read from or written to the cache.
            cached = self._usage.get("cache_read_input_tokens", 0)
            written = self._usage.get("cache_creation_input_tokens", 0)
            prompt = self._usage.get("input_tokens", 0) + written + cached
            used = TokenUsage(prompt, self._usage.get("output_tokens", 0), cached)
            return {"choices": [], "usage": used.as_wire()}
        return None

    def _count(self, holder: Event) -> None:
        counts = _mapping(holder.get("usage"))
        # The counts of `message_delta` are cumulative, so they replace earlier ones.
        self._usage |= {key: n for key, n in counts.items() if isinstance(n, int)}


def _mapping(value: Any) -> Event:
    return value if isinstance(value, Mapping) else {}
