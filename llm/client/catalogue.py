"""The models that the agent server has to choose between, those that it can fetch, and costs."""

from __future__ import annotations

import asyncio
from typing import Literal
from urllib.parse import quote

from pydantic import BaseModel

from llm.client.client import AgentClient
from llm.client.profile import ModelCard
from llm.messages.errors import ModelError

_PATIENCE = 2.0  # seconds that a page waits for the list of models


class ModelCards(BaseModel):
    """The response of `/v1/models`."""

    data: list[ModelCard]


async def model_choices(client: AgentClient) -> dict[str, str]:
    """Return the models to choose between, each name with that of the model behind it; the
    configured one first, and none that is the same. Empty while the server is away."""
    usual = client.settings.model
    try:
        async with asyncio.timeout(_PATIENCE):
            cards = (await client.ask(ModelCards, "GET", "/v1/models")).data
    except (ModelError, TimeoutError):
        return {}
    # A card that has embeddings and no way to call tools is that of a model without words.
    known = {
        card.id: card.root or card.id
        for card in cards
        if card.capabilities.tools or not card.capabilities.embeddings
    }
    root = known.get(usual, usual)
    return {usual: root} | {name: each for name, each in known.items() if each != root}


class FetchableModel(BaseModel):
    """A model that the server can fetch; sizes are in bytes, `bytes` have arrived."""

    name: str
    tier: str | None
    size: int
    memory: int
    licence: str
    open_source: bool
    can: str
    runs_well: bool
    best: bool
    is_here: bool
    is_used: bool
    bytes: int
    is_pulling: bool
    trouble: str


class FetchableModels(BaseModel):
    """The response of `/v1/catalogue`: the models that the server can fetch, small ones first."""

    data: list[FetchableModel]


class ModelUsage(BaseModel):
    """The usage of one model by one tendril on one day."""

    tendril: str
    model: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float


class UsageReport(BaseModel):
    """The response of `/usage`: that of all tendrils in the last 30 days; costs, by the table of
    prices, are in `currency`."""

    currency: str
    data: list[ModelUsage]


async def change_model(
    client: AgentClient, name: str, change: Literal["pull", "use"]
) -> FetchableModels:
    """Have the server fetch a model, or answer with it. Raises ModelError."""
    path = f"/v1/catalogue/{quote(name, safe='')}/{change}"
    return await client.ask(FetchableModels, "POST", path)
