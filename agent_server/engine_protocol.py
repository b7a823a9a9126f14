"""The interface that all engines implement."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from agent_server.errors import Unsupported
from agent_server.model_catalogue.machine import Gpu

Chunk = dict[str, Any]
"""One `chat.completion.chunk` as parsed JSON."""

Chunks = AsyncGenerator[Chunk, None]


def chunk_of(delta: Mapping[str, Any], finish_reason: str | None = None) -> Chunk:
    """Return a chunk of an answer with one choice."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


@dataclass(frozen=True, slots=True)
class TokenCount:
    """The token ids of a prompt, their number, and the engine's limit per request.

    `tokens` is empty if the engine reports only the number; `limit` is None if unknown. The number
    `is_estimate` if the engine cannot count.
    """

    tokens: tuple[int, ...]
    count: int
    limit: int | None
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts that an engine reports about its model; None means unknown.

    `context` is the window in tokens, `counts_tokens` whether `Engine.count` works, `weights` the
    model's name at the engine, `parameters` their number, and `gpus` the graphics processors in
    use; `identity` is a fingerprint that changes when the model is replaced. `is_final` is False
    while the model is not loaded, as its window may then turn out to be another one.
    """

    context: int | None = None
    tools: bool | None = None
    vision: bool | None = None
    reasoning: bool | None = None
    embeddings: bool | None = None
    counts_tokens: bool | None = None
    weights: str | None = None
    parameters: int | None = None
    gpus: tuple[Gpu, ...] | None = None
    identity: str | None = None
    is_final: bool = True


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """An upstream as the metrics show it; it `is_up` while it gets requests."""

    name: str
    is_up: bool
    running: int
    failures: int


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine and its queue as the metrics show them: `waiting` requests are counted by their
    priority."""

    slots: int
    running: int
    waiting: Mapping[str, int]
    upstreams: Sequence[UpstreamState] = ()


TRACEPARENT = "traceparent"
"""The field of a request body with the span of the client that sent it."""


class Engine(Protocol):
    """One model, wherever it runs."""

    @property
    def isolates_keys(self) -> bool:
        """True if prompts with different `cache_salt` never share entries of the prefix cache."""
        return False

    @property
    def upstreams(self) -> Sequence[UpstreamState]:
        """The servers that it sends requests to."""
        return ()

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Start and stop the engine's processes and connections."""

    def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the answer to `{"messages"}`, or the continuation of the text in `{"prompt"}`.

        Closing the generator stops the generation. The choices of a prompt have `text` where those
        of a chat have `delta`. Raises ApiError: when called, before the first chunk, or between
        two.

        - `model` in the body selects one of the models of an upstream with several; the default is
          the engine's own.
        - `max_tokens` is the only limit of the answer; without it the engine's own applies.
        - `cache_salt` keeps the cached prompts of different keys apart; engines that cannot do that
          drop it.
        - `traceparent` becomes the header of W3C's Trace Context for an upstream.
        - `"stream": false` says that nobody waits for the first words: the answer may be one chunk.
        - `session` keeps a conversation on one instance of the engine.
        """
        raise Unsupported("this model makes embeddings only; ask another model for words")

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count the tokens of `{"prompt"}` or `{"messages", "tools"?}`. Raises ApiError."""
        raise Unsupported("this model counts no tokens")

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an embeddings request of the API. Raises ApiError; Unsupported without them."""
        raise Unsupported("this model makes no embeddings; `terrarium model pull` fetches one")

    async def ready(self) -> bool:
        """Return whether the engine could answer a request now."""

    async def model_info(self, model: str | None = None) -> ModelInfo:
        """Ask the engine to describe its model, or one of the models of an upstream with several.
        Raises ApiError."""
        return ModelInfo()
