"""The catalogue of models that the agent server can fetch."""

from __future__ import annotations

from urllib.parse import quote

from pydantic import BaseModel

from llm.client.client import AgentClient


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
    bytes: int
    is_pulling: bool
    trouble: str


class FetchableModels(BaseModel):
    """The models that the server can fetch, small ones first."""

    data: list[FetchableModel]


async def read_catalogue(client: AgentClient) -> FetchableModels:
    """Return the models that the server can fetch. Raises ModelError."""
    return await client.ask(FetchableModels, "GET", "/v1/catalogue")


async def pull_model(client: AgentClient, name: str) -> FetchableModels:
    """Have the server fetch a model. Raises ModelError."""
    return await client.ask(FetchableModels, "POST", f"/v1/catalogue/{quote(name, safe='')}/pull")
