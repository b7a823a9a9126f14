"""An engine that speaks Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from agent_server.engine_protocol import Chunks, ModelInfo, TokenCount
from agent_server.engines.anthropic_translate import MessageStream, as_messages_request
from agent_server.engines.openai import SseStream, encode
from agent_server.engines.upstream_pool import UpstreamPool, UpstreamRequest
from agent_server.errors import EngineUnavailable, Unsupported

VERSION = "2023-06-01"
CONTEXT = 200_000
"""Tokens that every current model there reads."""


class AnthropicEngine:
    """The models of one account; `model` is asked when a request names none."""

    def __init__(
        self, urls: Sequence[str], *, key: str | None, model: str | None, timeout: float
    ) -> None:
        headers = {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
        self._upstream_pool = UpstreamPool(urls, headers, timeout=timeout)
        self._model = model

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._upstream_pool.is_busy

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Hold the connections open."""
        async with self._upstream_pool.lifespan():
            yield

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the answer to a chat; there is no continuing of bare texts."""
        if "prompt" in body:
            raise Unsupported("this model answers conversations only")
        asked = {**as_messages_request(body), "model": await self._name(body), "stream": True}
        answer = await self._upstream_pool.send(
            UpstreamRequest("POST", "/v1/messages", encode(asked), session)
        )
        message = MessageStream()
        try:
            stream = SseStream(answer)
            while arrived := await stream.next_batch():
                for data in arrived:
                    if chunk := message.chunk(_event(data)):
                        yield chunk
                if message.is_complete:
                    answer.finish()
                    return
            raise EngineUnavailable("the engine's answer broke off")
        finally:
            answer.close()

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Let them count; the tokens themselves are not told."""
        if "prompt" in body:
            body = {**body, "messages": [{"role": "user", "content": body["prompt"]}]}
        asked = {**as_messages_request(body), "model": await self._name(body)}
        answer = await self._json("POST", "/v1/messages/count_tokens", asked)
        return TokenCount((), int(answer.get("input_tokens", 0)), None)

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse: there are none."""
        raise Unsupported("this model makes no embeddings")

    async def ready(self) -> bool:
        """Whether the list of models can be had: it is up and takes our key."""
        return await self._upstream_pool.healthy()

    async def model_info(self) -> ModelInfo:
        """What their models have in common."""
        return ModelInfo(CONTEXT, tools=True, vision=True, embeddings=False, weights=self._model)

    async def _name(self, body: Mapping[str, Any]) -> str:
        if body.get("model"):
            return str(body["model"])
        if self._model is None:
            listed = (await self._json("GET", "/v1/models", None)).get("data") or [{}]
            if not isinstance(listed[0], dict) or "id" not in listed[0]:
                raise EngineUnavailable("the engine lists no model")
            self._model = str(listed[0]["id"])
        return self._model

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        content = None if body is None else encode(body)
        answer = _event(
            await (
                await self._upstream_pool.send(UpstreamRequest(method, path, content))
            ).read_all()
        )
        return dict(answer)


def _event(data: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise EngineUnavailable("the engine sent something that is not JSON")
    return event
