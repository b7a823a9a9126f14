"""The body of POST /v1/responses, and its translation to a chat request.

Clients send the items of an answer back: keys that mean nothing to a model are accepted.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

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

Status = Literal["in_progress", "completed", "incomplete"]


class ResponseTextPart(StrictModel):
    """A text from a person or from an earlier answer."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class RefusalPart(StrictModel):
    """An earlier refusal."""

    type: Literal["refusal"]
    refusal: str


class ResponseImagePart(StrictModel):
    """A picture, for models that can see."""

    type: Literal["input_image"]
    image_url: str
    detail: Literal["low", "high", "auto"] | None = None
    file_id: None = None


Part = Annotated[ResponseTextPart | RefusalPart | ResponseImagePart, Field(discriminator="type")]


class MessageItem(StrictModel):
    """A message of a person, the system or the model."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None

    def chat_content(self) -> str | list[dict[str, Any]]:
        """Return the content of a chat message; text only for roles that cannot have pictures."""
        if isinstance(self.content, str):
            return self.content
        parts: list[dict[str, Any]] = []
        for part in self.content:
            if isinstance(part, ResponseImagePart):
                picture = {
                    "url": part.image_url,
                    **({"detail": part.detail} if part.detail else {}),
                }
                parts.append({"type": "image_url", "image_url": picture})
            else:
                text = part.text if isinstance(part, ResponseTextPart) else part.refusal
                parts.append({"type": "text", "text": text})
        if self.role == "user":
            return parts
        return "".join(part.get("text", "") for part in parts)


class CallItem(StrictModel):
    """A tool call of an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Status | None = None


class ResultItem(StrictModel):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[ResponseTextPart]
    id: str | None = None
    status: Status | None = None


class ReasoningText(StrictModel):
    """A part of the reasoning."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(StrictModel):
    """The reasoning before an earlier answer."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[ReasoningText] | None = None
    content: list[ReasoningText] | None = None
    encrypted_content: None = None
    status: Status | None = None


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[ResultItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(
        lambda item: (
            item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", None)
        )
    ),
]

ITEMS = TypeAdapter[list[Item]](list[Item])


def as_messages(items: Iterable[Item]) -> Iterator[dict[str, Any]]:
    """Yield chat messages; reasoning, text and calls of one answer become one message."""
    answer: dict[str, Any] = {}  # the assistant's message under construction, {} for none
    for item in items:
        if isinstance(item, ReasoningItem):
            thoughts = "".join(thought.text for thought in item.content or ())
            if thoughts:
                answer["reasoning_content"] = answer.get("reasoning_content", "") + thoughts
        elif isinstance(item, CallItem):
            function = {"name": item.name, "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            answer.setdefault("tool_calls", []).append(call)
        elif (
            isinstance(item, MessageItem)
            and item.role == "assistant"
            # Not after other text or calls, which begin the next message.
            and answer.keys().isdisjoint(("content", "tool_calls"))
        ):
            answer["content"] = item.chat_content()
        else:
            yield from _close_message(answer)
            answer = {}
            if isinstance(item, ResultItem):
                output = item.output
                words = output if isinstance(output, str) else "".join(p.text for p in output)
                yield {"role": "tool", "tool_call_id": item.call_id, "content": words}
            elif item.role == "assistant":
                answer["content"] = item.chat_content()
            else:
                yield {"role": item.role, "content": item.chat_content()}
    yield from _close_message(answer)


def _close_message(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if answer:
        content = answer.get("content") or (None if "tool_calls" in answer else "")
        yield {**answer, "role": "assistant", "content": content}


class FunctionTool(FunctionSpec):
    """A tool that the client runs; the built-in tools of this API are not supported."""

    type: Literal["function"]

    def as_chat(self) -> dict[str, Any]:
        """Return the tool in the form of a chat request."""
        return {"type": "function", "function": _without_nulls(self)}


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
        return {"type": "json_schema", "json_schema": _without_nulls(self)}


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

    def messages(self) -> list[dict[str, Any]]:
        """Return the input as chat messages."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return list(as_messages(self.input))

    def as_chat(self, history: Sequence[Mapping[str, Any]]) -> ChatRequest:
        """Return the equivalent chat request, after the messages of `history`. Raises
        InvalidRequest."""
        self.require_known()
        choice: Any = self.tool_choice
        if isinstance(choice, FunctionChoice):
            choice = {"type": "function", "function": {"name": choice.name}}
        rules = [{"role": "system", "content": self.instructions}] if self.instructions else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*rules, *history, *self.messages()],
            "parallel_tool_calls": self.parallel_tool_calls,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_output_tokens,
            "tool_choice": choice,
            "stream": self.stream,
        }
        if self.tools:
            body["tools"] = [tool.as_chat() for tool in self.tools]
        if self.text:
            body["response_format"] = self.text.format.as_chat()
            body["verbosity"] = self.text.verbosity
        if self.reasoning:
            body["reasoning_effort"] = self.reasoning.effort
        if self.include or self.top_logprobs:
            body.update(logprobs=True, top_logprobs=self.top_logprobs)
        return validate(ChatRequest, body)

    def request_echo(self) -> dict[str, Any]:
        """Return the fields of the request that a response repeats."""
        text, choice = self.text or TextConfig(), self.tool_choice
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
            "tools": [tool.model_dump() for tool in self.tools or ()],
            "top_logprobs": self.top_logprobs or 0,
            "top_p": self.top_p,
            "truncation": "disabled",
        }


def _without_nulls(model: StrictModel) -> dict[str, Any]:
    """Return a part of the request without its type and nulls, which some engines reject."""
    return model.model_dump(by_alias=True, exclude={"type"}, exclude_none=True)
