"""Token usage of requests to a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of prompt and completion; `cached` prompt tokens came from the engine's cache."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Add the usage of another request."""
        return TokenUsage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
        )

    def merge_choice(self, other: TokenUsage) -> TokenUsage:
        """Add the usage of another choice of the same prompt; the prompt counts once."""
        return TokenUsage(
            max(self.prompt, other.prompt),
            self.completion + other.completion,
            max(self.cached, other.cached),
        )

    def limit_cached(self, limit: int) -> TokenUsage:
        """Return the usage with at most `limit` cached tokens."""
        return TokenUsage(self.prompt, self.completion, min(self.cached, limit))

    @classmethod
    def from_wire(cls, usage: Mapping[str, Any]) -> TokenUsage:
        """Parse the `usage` object of an engine; anything but a positive integer counts as 0."""
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
        prompt = _count(usage.get("prompt_tokens"))
        return cls(prompt, _count(usage.get("completion_tokens")), min(_count(cached), prompt))

    def as_wire(self) -> dict[str, Any]:
        """Return the `usage` object of the API."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
