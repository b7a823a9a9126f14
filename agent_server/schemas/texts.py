"""The bodies of POST /v1/completions and /v1/embeddings: bare texts, without roles or a template.

Sources: https://platform.openai.com/docs/api-reference/completions and
https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from agent_server.engine_protocol import Chunk
from agent_server.errors import InvalidRequest
from agent_server.schemas.chat import INT32, LogitBias, Sampling, StreamOptions, StrictRequest

MAX_TEXTS = 2048
"""Most texts to embed in one request, OpenAI's own limit."""

MAX_PROMPTS = 64
"""Most texts to continue in one request."""

DEFAULT_MAX_TOKENS = 16
"""Limit of an answer in tokens if the request has none, OpenAI's own default."""

FEWEST_TOKENS = 8
"""Fewest tokens to cut a text to: some stand around each, its type, beginning and end."""

Text = Annotated[str, Field(min_length=1)]
Ids = Annotated[list[Annotated[int, Field(strict=True, ge=0, le=INT32)]], Field(min_length=1)]


def _shape(value: Any) -> str:
    """Return the tag of the union by the type of the first item, so that an error names the item
    that does not fit instead of every branch."""
    if not isinstance(value, list):
        return "one text"
    first = value[0] if value else ""
    return "numbers" if isinstance(first, int) else "lists" if isinstance(first, list) else "texts"


Input = Annotated[
    Annotated[Text, Tag("one text")]
    | Annotated[Ids, Tag("numbers")]
    | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS), Tag("texts")]
    | Annotated[list[Ids], Field(min_length=1, max_length=MAX_TEXTS), Tag("lists")],
    Discriminator(_shape),
]
"""One or several texts, each a string or the token ids of a client's own tokenizer."""


class EmbeddingsRequest(StrictRequest):
    """The body of POST /v1/embeddings.

    Two fields are extensions: `input_type` for e5 models, which embed questions and passages
    differently, and `truncate_prompt_tokens`, as of vLLM: of a longer text so many tokens from its
    beginning are embedded, and it is not refused.
    """

    hints = frozenset(["user"])

    input: Input
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, le=INT32)
    input_type: Literal["query", "passage"] | None = None
    truncate_prompt_tokens: int | None = Field(None, ge=FEWEST_TOKENS, le=INT32)

    def as_wire(self) -> dict[str, Any]:
        """Return the request body for an engine."""
        return self.model_dump(exclude_none=True, exclude={*(self.model_extra or {})})


class CompletionRequest(Sampling, StrictRequest):
    """The body of POST /v1/completions. Several prompts are answered one after another, with `n`
    choices each."""

    model_config = ConfigDict(extra="allow", frozen=True)

    hints = frozenset(["user"])
    refused: ClassVar[Mapping[str, str]] = {
        "suffix": "the model continues a text, it fills no gaps"
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


def as_chat_choice(choice: Chunk, before: int) -> Chunk:
    """Return a choice in the chat API's form, numbered after `before` ones of earlier prompts."""
    logprobs = choice.get("logprobs")
    if logprobs and "tokens" in logprobs:  # the older form: parallel lists
        tokens = logprobs["tokens"]
        tops = logprobs.get("top_logprobs") or [{} for _ in tokens]
        rows = zip(tokens, logprobs["token_logprobs"], tops, strict=False)
        content = [
            {"token": token, "logprob": value, "top_logprobs": [
                {"token": other, "logprob": worth} for other, worth in (top or {}).items()
            ]}
            for token, value, top in rows
        ]  # fmt: skip
        logprobs = {"content": content}
    return {**choice, "index": choice["index"] + before, "logprobs": logprobs}
