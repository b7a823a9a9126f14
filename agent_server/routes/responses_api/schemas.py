"""The body of POST /v1/responses.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from agent_server.routes.responses_api.items import Item, as_messages
from agent_server.schemas.chat import (
    INT32,
    NAME,
    CacheKey,
    ChatRequest,
    Effort,
    FunctionSpec,
    Probability,
    Schema,
    StrictModel,
    StrictRequest,
    validate,
)


class FunctionTool(FunctionSpec):
    """A tool that the client runs; the built-in tools of this API are not supported."""

    type: Literal["function"]

    def as_chat(self) -> dict[str, Any]:
        """Return the tool in the form of a chat request."""
        return {"type": "function", "function": _without_nulls(self, "type")}


class FunctionChoice(StrictModel):
    """A tool choice that forces one tool."""

    type: Literal["function"]
    name: str


class TextFormat(StrictModel):
    """The form of the answer: text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = Field(None, pattern=NAME)
    schema_: Schema | None = Field(None, alias="schema")
    description: str | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _schema_belongs(self) -> Self:
        described = self.name is not None and self.schema_ is not None
        if (self.type == "json_schema") != described:
            raise ValueError("name and schema go with type json_schema, and only with it")
        return self

    def as_chat(self) -> dict[str, Any]:
        """Return the `response_format` of a chat request."""
        if self.type != "json_schema":
            return {"type": self.type}
        return {"type": "json_schema", "json_schema": _without_nulls(self, "type")}


class TextConfig(StrictModel):
    """The format and verbosity of the answer."""

    format: TextFormat = TextFormat()
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(StrictModel):
    """The reasoning effort. Reasoning is returned as it is, as summaries are not supported."""

    effort: Effort | None = None
    summary: None = None


class ResponseStreamOptions(StrictModel):
    """The options of a stream: obfuscation is not supported."""

    include_obfuscation: Literal[False] = False


class ResponseRequest(StrictRequest):
    """The body of POST /v1/responses."""

    model_config = ConfigDict(extra="allow", frozen=True)

    hints = frozenset(
        ["max_tool_calls", "prompt_cache_options", "prompt_cache_retention", "safety_identifier",
         "user"]
    )  # fmt: skip
    refused: ClassVar[Mapping[str, str]] = {
        "access_programs": "there are none here",
        "background": "an answer is made while its client waits",
        "background_options": "an answer is made while its client waits",
        "context_management": "the client decides what the model sees",
        "conversation": "write previous_response_id instead",
        "image": "this server makes no pictures",
        "moderation": "this server does not moderate",
        "prompt": "this server keeps no prompt templates",
    }

    model: str | None = None
    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: int | None = Field(None, ge=1, le=INT32)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: Probability | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    include: list[Literal["message.output_text.logprobs"]] | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    truncation: Literal["disabled"] | None = None
    metadata: dict[str, str] | None = Field(None, max_length=16)
    service_tier: Literal["auto", "default"] | None = None
    prompt_cache_key: CacheKey | None = None

    @property
    def wants_logprobs(self) -> bool:
        """True if each token comes with its log probability."""
        return bool(self.include or self.top_logprobs)

    def messages(self) -> list[dict[str, Any]]:
        """Return the input as chat messages."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return list(as_messages(self.input))

    def as_chat(self, history: Sequence[Mapping[str, Any]]) -> ChatRequest:
        """Return the equivalent chat request, after the messages of `history`.

        Raises InvalidRequest.
        """
        self.require_known()
        rules = [{"role": "system", "content": self.instructions}] if self.instructions else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*rules, *history, *self.messages()],
            "parallel_tool_calls": self.parallel_tool_calls,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_output_tokens,
            "tool_choice": self._choice(),
            "stream": self.stream,
        }
        if self.tools:
            body["tools"] = [tool.as_chat() for tool in self.tools]
        if self.text:
            body["response_format"] = self.text.format.as_chat()
            body["verbosity"] = self.text.verbosity
        if self.reasoning:
            body["reasoning_effort"] = self.reasoning.effort
        if self.wants_logprobs:
            body.update(logprobs=True, top_logprobs=self.top_logprobs)
        return validate(ChatRequest, body)

    def request_echo(self) -> dict[str, Any]:
        """Return the fields of the request that a response repeats."""
        text = self.text or TextConfig()
        tools = [tool.model_dump() for tool in self.tools or ()]
        choice = self.tool_choice
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": self.reasoning.model_dump() if self.reasoning else None,
            "service_tier": "default",
            "store": self.store is not False,
            "temperature": self.temperature,
            "text": text.model_dump(by_alias=True, exclude_none=True),
            "tool_choice": choice.model_dump()
            if isinstance(choice, FunctionChoice)
            else choice or "auto",
            "tools": tools,
            "top_logprobs": self.top_logprobs or 0,
            "top_p": self.top_p,
            "truncation": "disabled",
        }

    def _choice(self) -> Any:
        if isinstance(self.tool_choice, FunctionChoice):
            return {"type": "function", "function": {"name": self.tool_choice.name}}
        return self.tool_choice


def _without_nulls(model: StrictModel, *but: str) -> dict[str, Any]:
    """Return a part of the request without nulls, which some engines reject, and without `but`."""
    dumped = model.model_dump(by_alias=True)
    return {key: value for key, value in dumped.items() if value is not None and key not in but}
