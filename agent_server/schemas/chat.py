"""Request bodies of the chat API; no field is silently dropped.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema

from agent_server.errors import InvalidRequest
from agent_server.schemas.schema_limits import (
    MAX_TOOLS,
    require_bounded,
    require_shallow,
    unsupported_pattern,
)


class StrictRequest(BaseModel):
    """A request in which every documented field works, or is listed in `hints` or `refused`.

    A refused field may still be null or false, which asks for nothing.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    hints: ClassVar[frozenset[str]] = frozenset()
    """Documented fields without an effect on the answer: accepted, but not passed on."""

    refused: ClassVar[Mapping[str, str]] = {}
    """Documented fields that cannot be honoured, and why."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Add the hints to the schema, and forbid other fields."""
        schema = handler(core_schema)
        described = handler.resolve_ref_schema(schema)
        hint = {"description": "Accepted; changes nothing about the answer."}
        described["properties"].update(dict.fromkeys(sorted(cls.hints), hint))
        described["additionalProperties"] = False
        return schema

    def require_known(self) -> None:
        """Raise InvalidRequest for a field that is unknown or cannot be honoured."""
        for key, value in (self.model_extra or {}).items():
            if key in self.hints or value is None or (value is False and key in self.refused):
                continue
            if key in self.refused:
                text, code = f"{key} is not supported: {self.refused[key]}", "unsupported_parameter"
            else:
                near = difflib.get_close_matches(key, type(self).model_fields, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                text, code = f"unknown field {key}{hint}", "unknown_parameter"
            raise InvalidRequest(text, param=key, code=code)


class StrictModel(BaseModel):
    """A part of a request, in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(StrictModel):
    """A text."""

    type: Literal["text"]
    text: str


class ImagePart(StrictModel):
    """A picture, for models that can see."""

    type: Literal["image_url"]
    image_url: dict[str, Any]


class AudioPart(StrictModel):
    """Audio, for models that can hear."""

    type: Literal["input_audio"]
    input_audio: dict[str, Any]


class FilePart(StrictModel):
    """A file, for servers that can read it."""

    type: Literal["file"]
    file: dict[str, Any]


Part = Annotated[TextPart | ImagePart | AudioPart | FilePart, Field(discriminator="type")]
Texts = Annotated[list[TextPart], Field(min_length=1)]
Parts = Annotated[list[Part], Field(min_length=1)]


class FunctionCall(StrictModel):
    """The name and arguments of a call: `arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str


class AssistantToolCall(StrictModel):
    """One tool call of an earlier answer."""

    id: str
    type: Literal["function"]
    function: FunctionCall
    index: int | None = Field(None, exclude=True)


class SystemMessage(StrictModel):
    """Rules for the model; `developer` is the newer name of the same role."""

    role: Literal["system", "developer"]
    content: str | Texts
    name: str | None = None


class UserMessage(StrictModel):
    """A message of a person."""

    role: Literal["user"]
    content: str | Parts
    name: str | None = None


class AssistantMessage(StrictModel):
    """An earlier answer. Its tool calls and its null content reach the engine unchanged.

    The excluded keys are those of an answer that clients send back with it.
    """

    role: Literal["assistant"]
    content: str | Texts | None = None
    name: str | None = None
    tool_calls: list[AssistantToolCall] | None = None
    reasoning_content: str | None = None
    refusal: str | None = Field(None, exclude=True)
    annotations: list[Any] | None = Field(None, exclude=True)
    audio: None = Field(None, exclude=True)
    function_call: None = Field(None, exclude=True)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and not self.tool_calls:
            raise ValueError("an assistant message needs content or tool_calls")
        return self


class ToolMessage(StrictModel):
    """The result of one tool call."""

    role: Literal["tool"]
    content: str | Texts
    tool_call_id: str
    name: str | None = None


Message = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


def plain(content: Any) -> str:
    """Return the text of a message's `content`: a string, a list of text parts, or null."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part.get("type") == "text")


NAME = r"^[a-zA-Z0-9_-]{1,64}$"
INT32 = 2**31 - 1
INT64 = 2**63 - 1

Schema = Annotated[dict[str, Any], AfterValidator(require_shallow)]


class FunctionSpec(StrictModel):
    """The description of a tool; `parameters` is a JSON schema of an object."""

    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class ChatTool(StrictModel):
    """One tool the model may call."""

    type: Literal["function"]
    function: FunctionSpec


class NamedFunction(StrictModel):
    """The name inside a forced tool choice."""

    name: str


class NamedTool(StrictModel):
    """A tool choice that forces one tool."""

    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class SchemaFormat(StrictModel):
    """The schema an answer must follow."""

    name: str = Field(pattern=NAME)
    schema_: Schema = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(StrictModel):
    """The form of the answer: text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None

    @model_validator(mode="after")
    def _schema_belongs(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema goes with type json_schema, and only with it")
        return self


class StreamOptions(StrictModel):
    """The options of a stream."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class PromptFields(BaseModel):
    """The part of a chat request that becomes the prompt; also a request to count its tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)]
    tools: Annotated[list[ChatTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None

    @model_validator(mode="after")
    def _tools_fit(self) -> Self:
        names = [tool.function.name for tool in self.tools or []]
        if len(names) != len(set(names)):
            raise ValueError("two tools have the same name")
        if self.tool_choice not in (None, "none", "auto") and not names:
            raise ValueError("tool_choice asks for a tool, but tools is empty")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            raise ValueError(f"tool_choice names {self.tool_choice.function.name}: not in tools")
        return self

    @model_validator(mode="after")
    def _schemas_are_bounded(self) -> Self:
        if schemas := self._schemas():
            require_bounded(schemas)
        return self

    def _schemas(self) -> list[dict[str, Any]]:
        """Return all JSON schemas of the request."""
        return [tool.function.parameters or {} for tool in self.tools or ()]

    def require_words_only(self) -> None:
        """Raise InvalidRequest for pictures, audio and files; `param` names their position."""
        for param, part in self._parts():
            if not isinstance(part, TextPart):
                text = f"this model reads text only; it cannot take {part.type}"
                raise InvalidRequest(text, param=param, code="unsupported_content")

    def require_no_addresses(self) -> None:
        """Raise InvalidRequest for a picture at an address: an engine in our network would fetch
        it, and could reach what the client cannot."""
        for param, part in self._parts():
            if isinstance(part, ImagePart):
                url = part.image_url.get("url")
                if isinstance(url, str) and url.lower().startswith("data:"):
                    continue
                text = "send the picture itself, as a data: URL; no address is opened for this key"
                raise InvalidRequest(text, param=param, code="unsupported_content")

    def _parts(self) -> Iterator[tuple[str, Part]]:
        """Yield the parts of all messages with their positions."""
        for index, message in enumerate(self.messages):
            if isinstance(message, UserMessage) and not isinstance(message.content, str):
                for place, part in enumerate(message.content):
                    yield f"messages[{index}].content[{place}]", part


class TokenizePrompt(StrictModel):
    """A request to count the tokens of a text."""

    model: str | None = None
    prompt: str


REASONING_PARAMS = ("reasoning_effort", "verbosity")
"""Parameters that only some models support; an upstream that does not refuses them itself."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
CacheKey = Annotated[str, Field(max_length=256)]
"""Requests with the same key share a prefix; they count as one session."""

Probability = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
TokenId = Annotated[str, Field(pattern=r"^\d{1,9}$")]
LogitBias = dict[TokenId, Annotated[float, Field(ge=-100, le=100)]]
Stop = str | Annotated[list[str], Field(min_length=1, max_length=4)]


class Sampling(BaseModel):
    """The sampling parameters and the conditions that end the answer."""

    model_config = ConfigDict(frozen=True)

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: Probability | None = None
    top_k: int | None = Field(None, ge=0, le=INT32)
    min_p: Probability | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    seed: int | None = Field(None, ge=-INT64, le=INT64)
    stop: Stop | None = None
    max_tokens: int | None = Field(None, ge=1, le=INT32)


class ChatRequest(PromptFields, Sampling, StrictRequest):
    """The body of POST /v1/chat/completions. `top_k` and `min_p` are common extensions."""

    model_config = ConfigDict(extra="allow", frozen=True)

    hints = frozenset(
        ["metadata", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user"]
    )
    refused: ClassVar[Mapping[str, str]] = {
        "audio": "this server makes no sound",
        "function_call": "write tool_choice instead",
        "functions": "write tools instead",
        "moderation": "this server does not moderate",
        "prediction": "predicted outputs are not supported",
        "store": "chats are not kept; /v1/responses keeps its answers",
        "web_search_options": "this server does not search; give the model a tool that does",
    }

    max_completion_tokens: int | None = Field(None, ge=1, le=INT32)
    n: int | None = Field(None, ge=1, le=16)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    logit_bias: LogitBias | None = None
    response_format: ResponseFormat | None = None
    modalities: list[Literal["text"]] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    reasoning_effort: Effort | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    service_tier: Literal["auto", "default"] | None = None
    prompt_cache_key: CacheKey | None = None

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.stream_options and not self.stream:
            raise ValueError("stream_options is only for stream=true")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs=true")
        return self

    def require_no_controls(self) -> None:
        """Raise InvalidRequest for parameters that the embedded engine has no control for."""
        for key in REASONING_PARAMS:
            if getattr(self, key) is not None:
                text = f"{key} is not supported: this model has no such control"
                raise InvalidRequest(text, param=key, code="unsupported_parameter")

    def require_followed_schema(self) -> None:
        """Raise InvalidRequest if llama.cpp would silently ignore the schema of the answer."""
        wanted = self.response_format.json_schema if self.response_format else None
        if wanted and (pattern := unsupported_pattern(wanted.schema_)) is not None:
            raise InvalidRequest(
                f"this model's engine cannot follow the pattern {pattern!r}: write it between ^ and"
                " $, of literals, classes as [0-9], groups, alternatives and repetitions only",
                param="response_format",
            )

    def _schemas(self) -> list[dict[str, Any]]:
        wanted = self.response_format.json_schema if self.response_format else None
        return [*super()._schemas(), *([wanted.schema_] if wanted else ())]

    @property
    def include_usage(self) -> bool:
        """True if a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


class GenerateRequest(Sampling):
    """The body of POST /v1/generate: one prompt, answered as one user message."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: str = Field(min_length=1)
    system: str | None = None
    model: str | None = None
    stream: Literal[False] | None = None


Body = TypeVar("Body", bound=BaseModel)


def validate(kind: type[Body], body: Mapping[str, Any]) -> Body:
    """Validate a body that was translated from another API. Raises InvalidRequest."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        problem = error.errors()[0]
        raise InvalidRequest(str(problem["msg"]).removeprefix("Value error, ")) from None
