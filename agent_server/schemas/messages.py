"""The bodies of POST /v1/messages and /v1/messages/count_tokens, and their translation.

`cache_control` and `citations` have no effect: engines cache prefixes by themselves, and citations
refer to documents, which are not supported.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from agent_server.schemas.chat import (
    INT32,
    NAME,
    ChatRequest,
    Effort,
    Probability,
    PromptFields,
    Schema,
    StrictModel,
    StrictRequest,
    validate,
)

Cache = Annotated[dict[str, Any] | None, Field(exclude=True)]


class TextBlock(StrictModel):
    """A text."""

    type: Literal["text"]
    text: str
    cache_control: Cache = None
    citations: list[Any] | None = Field(None, exclude=True)


class Base64Source(StrictModel):
    """A picture inside the request."""

    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str

    def as_url(self) -> str:
        """Return the picture as a data: URL."""
        return f"data:{self.media_type};base64,{self.data}"


class UrlSource(StrictModel):
    """A picture at a URL."""

    type: Literal["url"]
    url: str

    def as_url(self) -> str:
        """Return the URL."""
        return self.url


class ImageBlock(StrictModel):
    """A picture, for models that can see."""

    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource, Field(discriminator="type")]
    cache_control: Cache = None


class ToolUseBlock(StrictModel):
    """A tool call of an earlier answer."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    cache_control: Cache = None
    caller: None = Field(None, exclude=True)
    toolset_name: None = Field(None, exclude=True)


class ToolResultBlock(StrictModel):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[TextBlock] = ""
    is_error: bool = False
    cache_control: Cache = None


class ThinkingBlock(StrictModel):
    """The reasoning before an earlier answer."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(StrictModel):
    """Encrypted reasoning, which is not passed on."""

    type: Literal["redacted_thinking"]
    data: str


UserBlock = Annotated[TextBlock | ImageBlock | ToolResultBlock, Field(discriminator="type")]
AssistantBlock = Annotated[
    TextBlock | ToolUseBlock | ThinkingBlock | RedactedThinkingBlock, Field(discriminator="type")
]


class AnthropicUserMessage(StrictModel):
    """A message of a person, or the results of tool calls."""

    role: Literal["user"]
    content: str | Annotated[list[UserBlock], Field(min_length=1)]

    def as_chat(self) -> Iterator[dict[str, Any]]:
        """Yield chat messages, tool results first: there they follow their calls directly."""
        if isinstance(self.content, str):
            yield {"role": "user", "content": self.content}
            return
        parts = []
        for block in self.content:
            if isinstance(block, ToolResultBlock):
                said = words(block.content)
                if block.is_error:  # the chat API has no flag for it
                    said = f"Error: {said}"
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": said}
            elif isinstance(block, ImageBlock):
                url = block.source.as_url()
                parts.append({"type": "image_url", "image_url": {"url": url}})
            else:
                parts.append({"type": "text", "text": block.text})
        if parts:
            yield {"role": "user", "content": parts}


class AnthropicAssistantMessage(StrictModel):
    """An earlier answer."""

    role: Literal["assistant"]
    content: str | Annotated[list[AssistantBlock], Field(min_length=1)]

    def as_chat(self) -> Iterator[dict[str, Any]]:
        """Yield the chat message with the texts, the thoughts and the tool calls."""
        if isinstance(self.content, str):
            yield {"role": "assistant", "content": self.content}
            return
        texts = [block.text for block in self.content if isinstance(block, TextBlock)]
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
        thoughts = [block.thinking for block in self.content if isinstance(block, ThinkingBlock)]
        if thoughts:
            message["reasoning_content"] = "\n".join(thoughts)
        calls = []
        for block in self.content:
            if isinstance(block, ToolUseBlock):
                arguments = json.dumps(block.input, ensure_ascii=False)
                function = {"name": block.name, "arguments": arguments}
                calls.append({"id": block.id, "type": "function", "function": function})
        if calls:
            message.update(tool_calls=calls, content=message["content"] or None)
        yield message


class AnthropicSystemMessage(StrictModel):
    """Rules in the middle of a conversation."""

    role: Literal["system"]
    content: str | Annotated[list[TextBlock], Field(min_length=1)]

    def as_chat(self) -> Iterator[dict[str, Any]]:
        """Yield the chat message."""
        yield {"role": "system", "content": words(self.content)}


Turn = Annotated[
    AnthropicUserMessage | AnthropicAssistantMessage | AnthropicSystemMessage,
    Field(discriminator="role"),
]


class CustomTool(StrictModel):
    """A tool that the client runs."""

    name: str = Field(pattern=NAME)
    input_schema: Schema
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: Cache = None
    eager_input_streaming: bool | None = Field(None, exclude=True)

    def as_chat(self) -> dict[str, Any]:
        """Return the tool in the form of a chat request."""
        function: dict[str, Any] = {"name": self.name, "parameters": self.input_schema}
        function |= self.model_dump(include={"description", "strict"}, exclude_none=True)
        return {"type": "function", "function": function}


class ToolChoiceAny(StrictModel):
    """A tool choice that names no tool."""

    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool = False


class ToolChoiceTool(StrictModel):
    """A tool choice that forces one tool."""

    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False


class Thinking(StrictModel):
    """A request to show the reasoning of a model that thinks before it answers.

    `max_tokens` is the only limit: no engine ends its reasoning at `budget_tokens`.
    """

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(None, ge=1, le=INT32)
    display: Literal["summarized", "omitted"] | None = None


class JsonFormat(StrictModel):
    """The schema that the answer must follow."""

    type: Literal["json_schema"]
    schema_: Schema = Field(alias="schema")


class OutputConfig(StrictModel):
    """The form of the answer and the effort that goes into it."""

    effort: Effort | None = None
    format: JsonFormat | None = None


class CountTokensRequest(StrictRequest):
    """The body of POST /v1/messages/count_tokens: the fields that become the prompt."""

    hints = frozenset(["cache_control"])
    refused: ClassVar[Mapping[str, str]] = {
        "user_profile_id": "this server has no user profiles",
        "workspace_id": "this server has no workspaces",
    }

    model: str
    messages: Annotated[list[Turn], Field(min_length=1)]
    system: str | list[TextBlock] | None = None
    tools: list[CustomTool] | None = None
    tool_choice: Annotated[ToolChoiceAny | ToolChoiceTool, Field(discriminator="type")] | None = (
        None
    )
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    speed: Literal["standard"] | None = None

    def as_tokenize(self) -> PromptFields:
        """Return the request that counts the tokens of a chat. Raises InvalidRequest."""
        self.require_known()
        return validate(PromptFields, self.prompt())

    def prompt(self) -> dict[str, Any]:
        """Return the fields of a chat request that become the prompt."""
        messages: list[dict[str, Any]] = []
        if self.system:
            messages.append({"role": "system", "content": words(self.system)})
        for turn in self.messages:
            messages.extend(turn.as_chat())
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        if self.tools:
            body["tools"] = [tool.as_chat() for tool in self.tools]
        choice = self.tool_choice
        if choice is None:
            return body
        if choice.disable_parallel_tool_use:
            body["parallel_tool_calls"] = False
        if isinstance(choice, ToolChoiceTool):
            body["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
        else:
            body["tool_choice"] = "required" if choice.type == "any" else choice.type
        return body


class MessagesRequest(CountTokensRequest):
    """The body of POST /v1/messages, with the sampling parameters of its older versions."""

    hints = frozenset(["cache_control", "metadata"])
    refused: ClassVar[Mapping[str, str]] = {
        **CountTokensRequest.refused,
        "container": "this server runs no code",
        "diagnostics": "this server keeps no diagnostics",
        "inference_geo": "the model runs where this server runs",
    }

    max_tokens: int = Field(ge=1, le=INT32)
    stop_sequences: list[str] | None = Field(None, max_length=4)
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: Probability | None = None
    top_k: int | None = Field(None, ge=0, le=INT32)
    service_tier: Literal["auto", "standard_only"] | None = None

    def as_chat(self) -> ChatRequest:
        """Return the equivalent chat request. Raises InvalidRequest."""
        self.require_known()
        body = {
            **self.prompt(),
            **self.model_dump(include={"temperature", "top_p", "top_k"}, exclude_none=True),
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences or None,
            "stream": self.stream,
        }
        config = self.output_config or OutputConfig()
        if config.format:
            schema = {"name": "answer", "schema": config.format.schema_}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if config.effort:
            body["reasoning_effort"] = config.effort
        return validate(ChatRequest, body)

    @property
    def shows_thinking(self) -> bool:
        """True if the reasoning is part of the answer."""
        thinking = self.thinking
        return bool(thinking and thinking.type != "disabled" and thinking.display != "omitted")


def words(content: str | list[TextBlock]) -> str:
    """Return the text of a message's content, which has only text blocks."""
    if isinstance(content, str):
        return content
    return "\n\n".join(block.text for block in content)
