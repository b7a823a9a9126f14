"""Response bodies of our own endpoints, for the OpenAPI description at /openapi.json.

Answers of models are built as plain objects and not validated against these, which would cost time
for each answer. The tests validate them, and those of other APIs against the models of their SDKs.
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


class GenerateResponse(BaseModel):
    """The answer to one prompt."""

    id: str
    model: str
    text: str | None
    finish_reason: str
    usage: UsageBody | None


class DeletedResponse(BaseModel):
    """A response that was deleted."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class InputTokens(BaseModel):
    """The number of tokens that a conversation would send to the engine."""

    input_tokens: int
    estimated: bool = False


class ModelObject(BaseModel):
    """A model card. `window` and `max_model_len` are the context in tokens.

    `root` is the model that an alias stands for, `weights` the name of the loaded model, `gpus` are
    the GPUs that the engine can use, and `better` is a larger model that `terrarium model pull` has
    for this machine. Null means unknown, maybe only so far.
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "terrarium"
    root: str
    max_model_len: int
    window: int
    parameters: int | None = None
    prompt_tokens_per_second: float | None = None
    profile: str | None = None
    weights: str | None = None
    gpus: list[str] | None = None
    better: str | None = None
    capabilities: dict[str, Any]


class ModelList(BaseModel):
    """All models and aliases."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


class TokenizeResponse(BaseModel):
    """The tokens of a prompt."""

    count: int
    max_model_len: int | None
    tokens: list[int]
    estimated: bool = False


Documented = dict[int | str, dict[str, Any]]


def answers(body: type[BaseModel] | str, *, stream: bool = False) -> Documented:
    """Return the `responses` of a route that answers with `body`, or with events if `stream`.

    A body of another API is the URL of its description there.
    """
    if isinstance(body, str):
        documented: Documented = {200: {"description": f"The object described at {body}"}}
    else:
        documented = {200: {"model": body}}
    if stream:
        documented[200]["content"] = {"text/event-stream": {}}
    return documented


def _error_answers(model: type[BaseModel]) -> Documented:
    return {
        "4XX": {"model": model, "description": "The request cannot be honoured"},
        "5XX": {"model": model, "description": "The server or its engine cannot now"},
    }


ERRORS = _error_answers(ErrorBody)
"""The `responses` of every route for errors."""
ANTHROPIC_ERRORS = _error_answers(AnthropicErrorBody)
"""The `responses` of the routes of Anthropic's API for errors."""
