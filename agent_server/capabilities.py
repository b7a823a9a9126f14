"""What a model can do: what the configuration says, else what its engine says of it."""

from __future__ import annotations

from dataclasses import dataclass

from agent_server.engines.base import Traits
from agent_server.model_settings import OneModel, Tools


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`context` is tokens of prompt and answer in one request; with `cache_reuse` a prompt that has
    lost some of its middle is not read anew. None is "nobody says"."""

    tools: Tools
    context: int
    vision: bool
    reasoning: bool | None
    embeddings: bool | None
    cache_reuse: bool

    @classmethod
    def of(cls, settings: OneModel, traits: Traits) -> Capabilities:
        """What `settings` say counts, then `traits`; an upstream of which neither says that it
        is blind may see."""
        said = settings.context if "context" in settings.model_fields_set else None
        tools = settings.tools
        if tools is None and traits.tools is False and settings.tool_mode == "native":
            tools = "constrained"
        return cls(
            tools=tools or settings.tool_mode,
            context=said or traits.context or settings.context,
            vision=_first(settings.vision, traits.vision, bool(settings.urls)),
            reasoning=_either(settings.reasoning, traits.reasoning),
            embeddings=_either(settings.embeddings, traits.embeddings),
            cache_reuse=not settings.urls,  # others may, but none says so
        )

    def as_wire(self) -> dict[str, bool | int | str | None]:
        """As the list of models tells it."""
        return {
            "tools": self.tools,
            "vision": self.vision,
            "reasoning": self.reasoning,
            "embeddings": self.embeddings,
            "cache_reuse": self.cache_reuse,
        }


def _either(said: bool | None, seen: bool | None) -> bool | None:
    return seen if said is None else said


def _first(said: bool | None, seen: bool | None, otherwise: bool) -> bool:
    known = _either(said, seen)
    return otherwise if known is None else known
