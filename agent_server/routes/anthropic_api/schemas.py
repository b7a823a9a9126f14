"""The bodies of POST /v1/messages and /v1/messages/count_tokens.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from agent_server.routes.anthropic_api.blocks import Cache, TextBlock, Turn
from agent_server.schemas.chat import (
    INT32,
    NAME,
    Effort,
    Probability,
    Schema,
    StrictModel,
    StrictRequest,
)


class CustomTool(StrictModel):
    """A tool that the client runs."""

    name: str = Field(pattern=NAME)
    input_schema: Schema
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: Cache = None
    eager_input_streaming: bool | None = Field(None, exclude=True)


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

    @property
    def is_shown(self) -> bool:
        """True if the reasoning is part of the answer."""
        return self.type != "disabled" and self.display != "omitted"


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

    model_config = ConfigDict(extra="allow", frozen=True)

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

    @model_validator(mode="after")
    def _tools_fit(self) -> Self:
        names = [tool.name for tool in self.tools or []]
        if len(names) != len(set(names)):
            raise ValueError("two tools have the same name")
        choice = self.tool_choice
        if choice and choice.type not in ("auto", "none") and not names:
            raise ValueError("tool_choice asks for a tool, but tools is empty")
        if isinstance(choice, ToolChoiceTool) and choice.name not in names:
            raise ValueError(f"tool_choice names {choice.name!r}: not in tools")
        return self


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

    def sampling(self) -> dict[str, Any]:
        """Return the sampling parameters of the chat API."""
        chosen = self.model_dump(include={"temperature", "top_p", "top_k"}, exclude_none=True)
        return {**chosen, "max_tokens": self.max_tokens, "stop": self.stop_sequences or None}

    @property
    def shows_thinking(self) -> bool:
        """True if the reasoning is part of the answer."""
        return bool(self.thinking and self.thinking.is_shown)
