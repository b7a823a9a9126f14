"""An engine that speaks Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_server.engine_protocol import Chunks, ModelInfo, TokenCount
from agent_server.engines.anthropic_translate import MessageStream, as_messages_request
from agent_server.engines.upstream_pool import (
    SseStream,
    UpstreamEngine,
    UpstreamRequest,
    parse_json,
)
from agent_server.errors import EngineUnavailable, Unsupported

VERSION = "2023-06-01"
CONTEXT_TOKENS = 200_000
"""Context window in tokens of every current model there."""


class AnthropicEngine(UpstreamEngine):
    """The models of one account; with `model` None the first one listed is the default."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        key: str | None,
        model: str | None,
        timeout: float,
        slots: int | None = None,
    ) -> None:
        headers = {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
        super().__init__(urls, headers, model=model, timeout=timeout, slots=slots)

    @property
    def isolates_keys(self) -> bool:
        """False: the upstream is not told whose prompts it gets."""
        return False

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the answer to a chat. Raises ApiError; Unsupported for a bare `prompt`."""
        if "prompt" in body:
            raise Unsupported("this model answers conversations only")
        asked = {**as_messages_request(body), **self._named(body), "stream": True}
        answer = await self._upstream_pool.send(
            UpstreamRequest("POST", "/v1/messages", asked, session, names_model=True)
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
            # Only `message_stop` ends a message: without it the answer is incomplete.
            raise EngineUnavailable("the engine's answer broke off")
        finally:
            answer.close()

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count the tokens at the upstream, which reports neither their ids nor a limit."""
        if "prompt" in body:
            body = {**body, "messages": [{"role": "user", "content": body["prompt"]}]}
        asked = {**as_messages_request(body), **self._named(body)}
        answer = await self._json(
            UpstreamRequest("POST", "/v1/messages/count_tokens", asked, names_model=True)
        )
        return TokenCount((), int(answer.get("input_tokens", 0)), None)

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Raise Unsupported: the API has no embeddings."""
        raise Unsupported("this model makes no embeddings")

    async def model_info(self) -> ModelInfo:
        """Return the facts that hold for all models of the API."""
        return ModelInfo(
            CONTEXT_TOKENS, tools=True, vision=True, embeddings=False, weights=self._model
        )

    def _named(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"model": body.get("model") or self._model}


def _event(data: bytes) -> Mapping[str, Any]:
    event = parse_json(data)
    if not isinstance(event, dict):
        raise EngineUnavailable("the engine sent something that is not JSON")
    return event
