"""The interface of engines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from agent_server.model_catalogue.machine import Gpu

Chunk = dict[str, Any]
"""One `chat.completion.chunk` as parsed JSON."""

Chunks = AsyncGenerator[Chunk, None]


@dataclass(frozen=True, slots=True)
class TokenCount:
    """The tokens of a prompt, and how many fit into one request (None: the engine won't say)."""

    tokens: tuple[int, ...]
    count: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts that an engine tells of its model; None is unknown.

    `context` is in tokens, `weights` the model's name there, `parameters` their number, `gpus` what
    computes it besides the processor; `identity` differs when it is another model.
    """

    context: int | None = None
    tools: bool | None = None
    vision: bool | None = None
    reasoning: bool | None = None
    embeddings: bool | None = None
    weights: str | None = None
    parameters: int | None = None
    gpus: tuple[Gpu, ...] | None = None
    identity: str | None = None


class Engine(Protocol):
    """One model, wherever it runs."""

    @property
    def is_busy(self) -> bool:
        """True while a request is in flight."""

    @property
    def isolates_keys(self) -> bool:
        """True if no prompt is read from what the prefix cache holds of another `cache_salt`."""

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Start and stop what the engine needs."""

    def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the answer to `{"messages"}`, or the continuation of the text in `{"prompt"}`.

        Closing the generator stops the generation. Choices of a prompt have `text` where those
        of a chat have `delta`. A `model` in the body is one of the upstream's, for upstreams of
        many; without one the engine's own is asked. `cache_salt` is for engines that keep the
        prompts of several keys apart; others leave it out. `session` keeps a conversation on one
        engine; with `"stream": false` the answer is sent whole, so that chunks may be joined.
        Raises ApiError, at once, before the first chunk or between two.
        """

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count the tokens of `{"prompt"}` or `{"messages", "tools"?}`. Raises ApiError."""

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an embeddings request of the API. Raises ApiError, Unsupported when it cannot."""

    async def ready(self) -> bool:
        """Return whether a token could be made now."""

    async def model_info(self) -> ModelInfo:
        """Ask what the model can do. Raises ApiError."""
