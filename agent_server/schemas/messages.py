"""The messages of a conversation, as the OpenAI chat API has them.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class StrictModel(BaseModel):
    """A part of a request: an unknown key is an error, never silently dropped."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(StrictModel):
    """Words."""

    type: Literal["text"]
    text: str


class ImagePart(StrictModel):
    """A picture, for models that can see."""

    type: Literal["image_url"]
    image_url: dict[str, Any]


class AudioPart(StrictModel):
    """Sound, for models that can hear."""

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
    """What the model asked a tool: `arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str


class AssistantToolCall(StrictModel):
    """One call of an earlier answer."""

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
    """What a person said."""

    role: Literal["user"]
    content: str | Parts
    name: str | None = None


class AssistantMessage(StrictModel):
    """An earlier answer. Its calls and its null content reach the engine as they came.

    The keys that are excluded are those of an answer that clients send back with it.
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
    """The result of one call."""

    role: Literal["tool"]
    content: str | Texts
    tool_call_id: str
    name: str | None = None


Message = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


def plain(content: Any) -> str:
    """The words of a message's `content` in wire form: text, a list of text parts, or null."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part.get("type") == "text")
