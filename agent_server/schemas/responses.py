"""Response bodies of the endpoints, for the OpenAPI description at /openapi.json.

Answers are built as plain objects and not validated against these models, which would cost time
for each answer. The tests validate them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """The details of an error; `param` names the field of the request."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """An error response."""

    error: ErrorDetail


class AnthropicErrorDetail(BaseModel):
    """The details of an error in Anthropic's API."""

    type: str
    message: str


class AnthropicErrorBody(BaseModel):
    """An error response of Anthropic's API."""

    type: Literal["error"]
    error: AnthropicErrorDetail


class CachedTokens(BaseModel):
    """The number of prompt tokens that came from the engine's cache."""

    cached_tokens: int


class UsageBody(BaseModel):
    """The tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class ChatMessage(BaseModel):
    """The answer of the model: text, tool calls and reasoning."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    tool_calls: list[dict[str, Any]] | None = None
    reasoning_content: str | None = None


class ChatChoice(BaseModel):
    """One of n answers."""

    index: int
    message: ChatMessage
    logprobs: dict[str, Any] | None
    finish_reason: str


class ChatCompletion(BaseModel):
    """The answer to a conversation."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageBody | None


class TextChoice(BaseModel):
    """One of n answers to one of the prompts."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: str


class TextCompletion(BaseModel):
    """The continuation of bare texts."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageBody | None


class GenerateResponse(BaseModel):
    """The answer to one prompt."""

    id: str
    model: str
    text: str | None
    finish_reason: str
    usage: UsageBody | None


class ResponseBody(BaseModel):
    """An answer as items."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    previous_response_id: str | None
    metadata: dict[str, str]
    tools: list[dict[str, Any]]
    store: bool


class DeletedResponse(BaseModel):
    """A response that was deleted."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class Embedding(BaseModel):
    """One vector: a list of numbers, or float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """The tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """The vectors of texts, in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class AnthropicUsage(BaseModel):
    """The tokens of one request; `input_tokens` do not include the cached ones."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class AnthropicMessage(BaseModel):
    """The answer to a conversation, in the form of Anthropic's API."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str
    stop_sequence: str | None
    usage: AnthropicUsage


class InputTokens(BaseModel):
    """The number of tokens that a conversation would send to the engine."""

    input_tokens: int


class ModelObject(BaseModel):
    """A model card. `window` and `max_model_len` are the context in tokens.

    `root` is the model that an alias stands for, `weights` the name of the loaded model, `gpus` are
    the GPUs that the engine can use, and `better` is a larger model that `terrarium model pull` has
    for this machine. Null means unknown, maybe only so far.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    max_model_len: int
    window: int
    parameters: int | None
    prompt_tokens_per_second: float | None
    profile: str | None
    weights: str | None
    gpus: list[str] | None
    better: str | None
    capabilities: dict[str, Any]


class ModelList(BaseModel):
    """All models and aliases."""

    object: Literal["list"]
    data: list[ModelObject]


class TokenizeResponse(BaseModel):
    """The tokens of a prompt."""

    count: int
    max_model_len: int | None
    tokens: list[int]


Documented = dict[int | str, dict[str, Any]]


def answers(model: type[BaseModel], *, stream: bool = False) -> Documented:
    """Return the `responses` of a route that answers with `model`, or with events if `stream`."""
    documented: Documented = {200: {"model": model}}
    if stream:
        documented[200]["content"] = {"text/event-stream": {}}
    return documented


def error_answers(model: type[BaseModel]) -> Documented:
    """Return the `responses` of every route for errors."""
    return {
        "4XX": {"model": model, "description": "The request cannot be honoured"},
        "5XX": {"model": model, "description": "The server or its engine cannot now"},
    }
