"""Content blocks of a conversation in Anthropic's API.

`cache_control` and `citations` have no effect: engines cache prefixes by themselves, and citations
refer to documents, which are not supported.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from agent_server.schemas.chat import StrictModel

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

    def image_url(self) -> str:
        """Return the picture as a data URL."""
        return f"data:{self.media_type};base64,{self.data}"


class UrlSource(StrictModel):
    """A picture at a URL."""

    type: Literal["url"]
    url: str

    def image_url(self) -> str:
        """Return the picture's URL."""
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

    def words(self) -> str:
        """Return the result as text; an error gets a prefix, as the chat API has no flag for it."""
        said = words(self.content)
        return f"Error: {said}" if self.is_error else said


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


class AnthropicAssistantMessage(StrictModel):
    """An earlier answer."""

    role: Literal["assistant"]
    content: str | Annotated[list[AssistantBlock], Field(min_length=1)]


class AnthropicSystemMessage(StrictModel):
    """Rules in the middle of a conversation."""

    role: Literal["system"]
    content: str | Annotated[list[TextBlock], Field(min_length=1)]


Turn = Annotated[
    AnthropicUserMessage | AnthropicAssistantMessage | AnthropicSystemMessage,
    Field(discriminator="role"),
]


def words(content: str | list[TextBlock]) -> str:
    """Return the text of a message's content, which has only text blocks."""
    if isinstance(content, str):
        return content
    return "\n\n".join(block.text for block in content)
