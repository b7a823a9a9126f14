"""The server's answers as they come over HTTP, checked: chunks of a chat, counts, errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from llm.messages.errors import (
    Busy,
    ContextTooLong,
    ModelError,
    RequestRejected,
    TimedOut,
    Unreachable,
)


class FunctionPart(BaseModel):
    """A piece of a tool call."""

    name: str | None = None
    arguments: str | None = None


class CallPart(BaseModel):
    """A piece of the tool call number `index`; in an answer that comes whole it has no number."""

    index: int | None = None
    id: str | None = None
    function: FunctionPart = Field(default_factory=FunctionPart)


class Delta(BaseModel):
    """What a chunk adds to the answer."""

    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallPart] | None = None


class Choice(BaseModel):
    """The one choice that we ask for; in an answer that comes whole the delta is the message."""

    delta: Delta = Field(default_factory=Delta, validation_alias=AliasChoices("delta", "message"))
    finish_reason: str | None = None


class ErrorPart(BaseModel):
    """An OpenAI error object."""

    message: str = "no reason given"
    code: str | int | None = None


class Chunk(BaseModel):
    """One server-sent event of a streamed chat, or an answer that comes whole."""

    choices: list[Choice] = Field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: ErrorPart | None = None


class CountAnswer(BaseModel):
    """The answer of `/tokenize`."""

    count: int
    max_model_len: int


class CapabilitiesPart(BaseModel):
    """What a model can do; `tools` is "forced" for one that is too small to choose a tool.
    `chooses_tools` is null as long as the server has not tested whether it decides well when to use
    one."""

    tools: str | None = None
    chooses_tools: bool | None = None


class ModelCard(BaseModel):
    """The answer of `/v1/models/NAME`; `root` is the model that an alias stands for.

    `max_model_len` and `window` are the tokens of prompt and answer in one request, `parameters`
    is how many the model has, `prompt_tokens_per_second` how fast its engine reads what it has in
    no cache, `weights` what is loaded, `gpus` what computes it beside the processor, `better` what
    `terrarium model pull` has for the server's machine. None is "nobody knows", which is all that
    other servers may say.
    """

    id: str
    root: str | None = None
    max_model_len: int | None = None
    window: int | None = None
    parameters: int | None = None
    prompt_tokens_per_second: float | None = None
    weights: str | None = None
    gpus: list[str] | None = None
    better: str | None = None
    capabilities: CapabilitiesPart = Field(default_factory=CapabilitiesPart)

    @property
    def chooses_tools(self) -> bool | None:
        """Whether the model decides well when to use a tool; None is "not known yet".

        A server that says nothing of it has a model that is taken to.
        """
        able = self.capabilities
        if able.tools == "forced":
            return False
        return able.chooses_tools if "chooses_tools" in able.model_fields_set else True


class VectorPart(BaseModel):
    """The vector of one text."""

    index: int
    embedding: list[float]


class EmbeddingsAnswer(BaseModel):
    """The answer of `/v1/embeddings`."""

    model: str
    data: list[VectorPart]

    def vectors(self) -> list[list[float]]:
        """The vectors in the order of their texts."""
        return [part.embedding for part in sorted(self.data, key=lambda part: part.index)]


class ErrorAnswer(BaseModel):
    """The body of an answer other than 200."""

    error: ErrorPart


def error_of(status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
    """The error that an answer other than 200 stands for; names of `headers` are in lower case."""
    reason = _reason(content)
    if reason.code == "context_length_exceeded":
        return ContextTooLong(reason.message)
    if status == 429:
        return Busy(reason.message, _seconds(headers.get("retry-after")))
    if status in (408, 504):
        return TimedOut(reason.message)
    if status in (500, 502, 503):
        return Unreachable(reason.message)
    return RequestRejected(reason.message, status)


def error_in_stream(reason: ErrorPart) -> ModelError:
    """The error that ended an answer after it had begun."""
    if reason.code == "context_length_exceeded":
        return ContextTooLong(reason.message)
    return Unreachable(reason.message)


def _reason(content: bytes) -> ErrorPart:
    try:
        return ErrorAnswer.model_validate_json(content).error
    except ValidationError:
        return ErrorPart(message=json.dumps(content[:200].decode(errors="replace")))


def _seconds(value: str | None) -> float:
    """Retry-After in seconds; its form as a date is taken for one second."""
    return float(value) if value and value.isdigit() else 1.0
