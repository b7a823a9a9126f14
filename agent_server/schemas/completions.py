"""POST /v1/completions: what follows a bare text, without roles or a chat template.

Source: https://platform.openai.com/docs/api-reference/completions
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from agent_server.engine_protocol import Chunk, Chunks
from agent_server.errors import ApiError, InvalidRequest
from agent_server.http.json_encoding import sse_event
from agent_server.http.streaming import DONE, Events, log_stream_error
from agent_server.schemas.chat import LogitBias, Sampling, StreamOptions
from agent_server.schemas.chat_answer import ChunkMeta
from agent_server.schemas.strict import StrictRequest
from agent_server.schemas.token_inputs import Input
from terrarium.usage import TokenUsage

MOST_PROMPTS = 64
DEFAULT_LENGTH = 16
"""Tokens of an answer whose request names no limit: the API's own default."""

KIND = "text_completion"

Ask = Callable[[Mapping[str, Any]], Chunks]
"""Sends a body with a `prompt` to the engine."""


class CompletionRequest(Sampling, StrictRequest):
    """The body. Several prompts are answered one after another, `n` choices each."""

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
        """Raise InvalidRequest for what cannot be honoured."""
        super().require_known()
        if self.stream_options and not self.stream:
            raise InvalidRequest("stream_options is only for stream=true", param="stream_options")
        if len(self.prompts()) > MOST_PROMPTS:
            raise InvalidRequest(f"more than {MOST_PROMPTS} prompts", param="prompt")
        if self.best_of not in (None, self.n or 1):
            text = "best_of is not supported: every answer is returned, ask for n of them"
            raise InvalidRequest(text, param="best_of", code="unsupported_parameter")
        if self.echo and (self.logprobs is not None or not all(self.echoes())):
            text = "echo is for prompts in words, without logprobs"
            raise InvalidRequest(text, param="echo", code="unsupported_parameter")

    def prompts(self) -> list[str | list[int]]:
        """The prompts, each a text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)

    def echoes(self) -> list[str]:
        """What stands before each answer when it is echoed; empty for token ids."""
        return [prompt if isinstance(prompt, str) else "" for prompt in self.prompts()]

    def bodies(self) -> Iterator[dict[str, Any]]:
        """What the engine is asked, prompt by prompt."""
        own = {"model", "prompt", "best_of", "echo", "stream", "stream_options"}
        body = self.model_dump(exclude_none=True, exclude=own | {*(self.model_extra or {})})
        body.setdefault("max_tokens", DEFAULT_LENGTH)
        if self.logprobs == 0:
            body["logprobs"] = 1  # llama.cpp takes 0 for "none at all"
        for prompt in self.prompts():
            yield {**body, "prompt": prompt}


async def stream_completions(ask: Ask, request: CompletionRequest) -> Chunks:
    """Stream what follows each prompt, in the form of chat chunks; the usage of all comes last."""
    total, each = TokenUsage(), request.n or 1
    for place, body in enumerate(request.bodies()):
        spent = TokenUsage()
        async with aclosing(ask(body)) as chunks:
            async for chunk in chunks:
                if chunk.get("usage"):
                    spent = spent.beside(TokenUsage.from_wire(chunk["usage"]))
                choices = [_as_chat(choice, place * each) for choice in chunk.get("choices", ())]
                if choices:
                    yield {"choices": choices}
        total += spent
    yield {"choices": [], "usage": total.as_wire()}


class CompletionRenderer:
    """Turns chat chunks, or the whole chat answer made of them, into `text_completion` objects."""

    def __init__(self, request: CompletionRequest, meta: ChunkMeta) -> None:
        self._meta = meta
        self._top = request.logprobs or 0
        self._include_usage = bool(request.stream_options and request.stream_options.include_usage)
        self._echoes = request.echoes() if request.echo else []
        self._each = request.n or 1
        self._offsets: defaultdict[int, int] = defaultdict(int)

    async def events(self, first: Chunk, chunks: Chunks) -> Events:
        """The events of a stream."""
        try:
            for part in self._parts(first):
                yield sse_event(part)
            async for chunk in chunks:
                for part in self._parts(chunk):
                    yield sse_event(part)
        except ApiError as error:
            yield sse_event(log_stream_error(error).as_wire())
            return
        yield DONE

    def whole(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The answer in one piece, from a gathered chat answer."""
        choices = [
            self._choice({**choice, "delta": choice["message"]}) for choice in answer["choices"]
        ]
        return {**self._meta.as_wire(KIND), "choices": choices, "usage": answer["usage"]}

    def _parts(self, chunk: Chunk) -> Iterator[Chunk]:
        choices = [self._choice(choice) for choice in chunk["choices"]]
        if any(choice["text"] or choice["finish_reason"] for choice in choices):
            yield {**self._meta.as_wire(KIND), "choices": choices}
        if chunk.get("usage") and self._include_usage:
            yield {**self._meta.as_wire(KIND), "choices": [], "usage": chunk["usage"]}

    def _choice(self, choice: Chunk) -> dict[str, Any]:
        index = choice["index"]
        text = choice["delta"].get("content") or ""
        if self._echoes and index not in self._offsets:
            text = self._echoes[index // self._each] + text
        logprobs = _to_legacy_logprobs(
            (choice.get("logprobs") or {}).get("content"), self._offsets[index]
        )
        if logprobs and not self._top:
            logprobs["top_logprobs"] = None
        self._offsets[index] += len(text)
        finish = choice.get("finish_reason")
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}


def _as_chat(choice: Chunk, before: int) -> Chunk:
    """A choice of one prompt as one of all; `before` have other prompts."""
    logprobs = choice.get("logprobs")
    if logprobs and "tokens" in logprobs:
        logprobs = {"content": _to_chat_logprobs(logprobs)}
    return {
        "index": choice.get("index", 0) + before,
        "delta": {"content": choice.get("text") or ""},
        "logprobs": logprobs,
        "finish_reason": choice.get("finish_reason"),
    }


def _to_chat_logprobs(logprobs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The chat API's form of log probabilities, from parallel lists."""
    tops = logprobs.get("top_logprobs") or [{} for _ in logprobs["tokens"]]
    return [
        {"token": token, "logprob": value, "top_logprobs": [
            {"token": other, "logprob": worth} for other, worth in (top or {}).items()
        ]}
        for token, value, top in zip(
            logprobs["tokens"], logprobs["token_logprobs"], tops, strict=False
        )
    ]  # fmt: skip


def _to_legacy_logprobs(
    content: list[Mapping[str, Any]] | None, offset: int
) -> dict[str, Any] | None:
    """Parallel lists, from the chat API's form; `offset` characters came before."""
    if not content:
        return None
    offsets = []
    for entry in content:
        offsets.append(offset)
        offset += len(entry["token"])
    return {
        "tokens": [entry["token"] for entry in content],
        "token_logprobs": [entry["logprob"] for entry in content],
        "top_logprobs": [
            {top["token"]: top["logprob"] for top in entry.get("top_logprobs") or ()}
            for entry in content
        ],
        "text_offset": offsets,
    }
