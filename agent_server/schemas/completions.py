"""The body of POST /v1/completions: a bare text to continue, without roles or a chat template.

Source: https://platform.openai.com/docs/api-reference/completions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from agent_server.engine_protocol import Chunk, Chunks
from agent_server.errors import InvalidRequest
from agent_server.schemas.chat import LogitBias, Sampling, StreamOptions, StrictRequest
from agent_server.schemas.token_inputs import Input
from storage.usage.usage import TokenUsage

MAX_PROMPTS = 64
DEFAULT_MAX_TOKENS = 16
"""Limit of an answer in tokens if the request has none, OpenAI's own default."""

Ask = Callable[[Mapping[str, Any]], Chunks]
"""Sends a body with a `prompt` to the engine, and streams normalised chunks."""


class CompletionRequest(Sampling, StrictRequest):
    """The body of POST /v1/completions. Several prompts are answered one after another, with `n`
    choices each."""

    model_config = ConfigDict(extra="allow", frozen=True)

    hints = frozenset(["user"])
    refused: ClassVar[Mapping[str, str]] = {
        "suffix": "the model continues a text, it fills no gaps",
    }

    model: str | None = None
    prompt: Input
    n: int | None = Field(None, ge=1, le=16)
    best_of: int | None = Field(None, ge=1, description="only the same number as n")
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=5)
    logit_bias: LogitBias | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    def require_known(self) -> None:
        """Raise InvalidRequest for fields that are unknown or cannot be honoured."""
        super().require_known()
        if self.stream_options and not self.stream:
            raise InvalidRequest("stream_options is only for stream=true", param="stream_options")
        if len(self.prompts()) > MAX_PROMPTS:
            raise InvalidRequest(f"more than {MAX_PROMPTS} prompts", param="prompt")
        if self.best_of not in (None, self.n or 1):
            text = "best_of is not supported: every answer is returned, ask for n of them"
            raise InvalidRequest(text, param="best_of", code="unsupported_parameter")
        if self.echo and (self.logprobs is not None or not all(self.echoes())):
            text = "echo is for prompts in words, without logprobs"
            raise InvalidRequest(text, param="echo", code="unsupported_parameter")

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts, each a text or a list of token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)

    def echoes(self) -> list[str]:
        """Return the text to echo before each answer; empty for token ids."""
        return [prompt if isinstance(prompt, str) else "" for prompt in self.prompts()]

    def bodies(self) -> Iterator[dict[str, Any]]:
        """Yield the engine's request body for each prompt."""
        own = {"model", "prompt", "best_of", "echo", "stream", "stream_options"}
        body = self.model_dump(exclude_none=True, exclude=own | {*(self.model_extra or {})})
        body.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
        if self.logprobs == 0:
            body["logprobs"] = 1  # llama.cpp takes 0 for "none at all"
        for prompt in self.prompts():
            yield {**body, "prompt": prompt}


async def stream_completions(ask: Ask, request: CompletionRequest) -> Chunks:
    """Stream the continuations of all prompts as chat chunks; the last has the total usage."""
    total, each = TokenUsage(), request.n or 1
    for index, body in enumerate(request.bodies()):
        async with aclosing(ask(body)) as chunks:
            async for chunk in chunks:
                if chunk.get("usage"):
                    total += TokenUsage.from_wire(chunk["usage"])
                else:
                    choices = chunk["choices"]
                    yield {"choices": [_as_chat(choice, index * each) for choice in choices]}
    yield {"choices": [], "usage": total.as_wire()}


def _as_chat(choice: Chunk, before: int) -> Chunk:
    """Return a choice in the chat API's form, numbered after `before` ones of earlier prompts."""
    logprobs = choice.get("logprobs")
    if logprobs and "tokens" in logprobs:
        logprobs = {"content": _to_chat_logprobs(logprobs)}
    return {**choice, "index": choice["index"] + before, "logprobs": logprobs}


def _to_chat_logprobs(logprobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert parallel lists to the chat API's form of log probabilities."""
    tops = logprobs.get("top_logprobs") or [{} for _ in logprobs["tokens"]]
    return [
        {"token": token, "logprob": value, "top_logprobs": [
            {"token": other, "logprob": worth} for other, worth in (top or {}).items()
        ]}
        for token, value, top in zip(
            logprobs["tokens"], logprobs["token_logprobs"], tops, strict=False
        )
    ]  # fmt: skip
