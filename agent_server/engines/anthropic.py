"""An engine that speaks Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from agent_server.engine_protocol import Chunks, ModelInfo, TokenCount
from agent_server.engines.anthropic_translate import MessageStream, as_messages_request
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
from agent_server.errors import EngineMisconfigured, EngineUnavailable, Unsupported

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
