"""The tables `[usage]`, `[usage.prices.MODEL]` and `[usage.budgets.NAME]`: prices and budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.usage.usage import TokenUsage
from terrarium.config import Settings

PRICE_UNIT = 1_000_000
"""Number of tokens that a price is for."""


class Price(BaseModel):
    """The price of a million tokens of one model, in the currency of `[usage]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    prompt: float = Field(0, ge=0, description="a million tokens of prompts")
    cached: float | None = Field(
        None, ge=0, description="a million of them from the engine's cache; by default as prompt"
    )
    completion: float = Field(0, ge=0, description="a million tokens of answers")

    def cost(self, used: TokenUsage) -> float:
        """Return the cost of `used`."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = used.prompt - used.cached
        return (
            fresh * self.prompt + used.cached * cached + used.completion * self.completion
        ) / PRICE_UNIT


class BudgetSettings(BaseModel):
    """A budget for a UTC day: at least one of tokens and cost. A request is in each that fits."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    tendril: str | None = Field(
        None, description="only requests of this tendril, by the name of its key, such as irc"
    )
    model: str | None = Field(
        None, description="only requests to this model, by its name in the usage"
    )
    per: Literal["all", "tendril", "model", "channel", "person"] = Field(
        "all",
        description="whether all of these requests share it, or each tendril, model, channel or"
        " person has as much",
    )
    tokens_per_day: int | None = Field(
        None, ge=1, description="tokens of prompts and answers, until midnight UTC"
    )
    cost_per_day: float | None = Field(
        None, gt=0, description="cost by the prices, in the currency of `[usage]`"
    )

    @property
    def is_of_people(self) -> bool:
        """True if each channel or person has its own budget; both are known by pseudonyms."""
        return self.per in ("channel", "person")

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.tokens_per_day is None and self.cost_per_day is None:
            raise ValueError("give tokens_per_day, cost_per_day or both")
        return self


class UsageSettings(Settings):
    """The prices of tokens, their currency, and budgets."""

    table: ClassVar[str] = "usage"

    currency: str = Field("USD", min_length=1, description="the currency of the prices, as shown")
    prices: Mapping[str, Price] = Field(
        default_factory=dict,
        description="a table for each model that costs something, by the name clients ask for",
    )
    budgets: Mapping[str, BudgetSettings] = Field(
        default_factory=dict,
        description="what may be used in a day, as tables [usage.budgets.NAME]",
    )

    @model_validator(mode="after")
    def _costs_are_known(self) -> Self:
        for name, budget in self.budgets.items():
            if budget.cost_per_day is None:
                continue
            if not self.prices or (budget.model is not None and budget.model not in self.prices):
                priced = budget.model or "MODEL"
                raise ValueError(
                    f"the budget {name} has a cost, and [usage.prices.{priced}] is not there"
                )
        return self
