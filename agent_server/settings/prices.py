"""The tables `[usage]` and `[usage.prices.MODEL]`: what tokens cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from terrarium.config import Settings
from terrarium.usage import TokenUsage

PER = 1_000_000
"""Prices are for so many tokens."""


class Price(BaseModel):
    """What a million tokens of one model cost, in the currency of `[usage]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    prompt: float = Field(0, ge=0, description="a million tokens of prompts")
    cached: float | None = Field(
        None, ge=0, description="a million of them from the engine's cache; by default as prompt"
    )
    completion: float = Field(0, ge=0, description="a million tokens of answers")

    def cost(self, used: TokenUsage) -> float:
        """What `used` costs."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = used.prompt - used.cached
        return (
            fresh * self.prompt + used.cached * cached + used.completion * self.completion
        ) / PER


class UsageSettings(Settings):
    """What is shown of the use of the agent server."""

    table: ClassVar[str] = "usage"

    currency: str = Field("USD", min_length=1, description="the currency of the prices, as shown")
    prices: Mapping[str, Price] = Field(
        default_factory=dict,
        description="a table for each model that costs something, by the name clients ask for",
    )
