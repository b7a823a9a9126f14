"""GET /v1/catalogue and POST /v1/catalogue/{name}/pull: models to fetch, and fetching them."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from agent_server.errors import Forbidden, InvalidRequest, NotFound
from agent_server.model_catalogue import catalogue
from agent_server.model_catalogue.machine import Machine
from agent_server.routes.dependencies import Context, Server

router = APIRouter()


class CatalogueModel(BaseModel):
    """A model that can be fetched; sizes are in bytes."""

    name: str
    tier: str | None
    size: int
    memory: int
    licence: str
    open_source: bool
    parameters: int
    window: int
    can: str
    runs_well: bool = Field(description="on this machine, as far as can be estimated")
    best: bool = Field(description="the best one for this machine")
    is_here: bool
    bytes: int = Field(description="how many of the file have arrived")
    is_pulling: bool
    trouble: str = Field(description='why its last download has ended, "" for none')


class CatalogueList(BaseModel):
    """The models of the catalogue, small ones first."""

    object: str = "list"
    data: list[CatalogueModel]


@router.get("/v1/catalogue")
async def list_catalogue(server: Server, context: Context) -> CatalogueList:
    """List the models that can be fetched, with the state of their downloads. For the operator's
    own keys."""
    if not context.sees_all:
        raise Forbidden("the catalogue is for the operator's own keys")
    machine = Machine.here(server.pool.table.default.info.gpus or ())
    return CatalogueList(
        data=[
            CatalogueModel.model_validate(
                catalogue.describe(entry, machine) | server.pulls.state(entry)
            )
            for entry in catalogue.entries()
        ]
    )


@router.post("/v1/catalogue/{name}/pull")
async def pull(name: str, server: Server, context: Context) -> CatalogueList:
    """Begin to fetch a model of the catalogue, which is checked against its SHA-256; one at a time.
    For the operator's own keys."""
    if not context.sees_all:
        raise Forbidden("models are fetched by the operator's own keys only")
    entry = catalogue.find(name)
    if entry is None:
        raise NotFound(
            f"no model is called {name!r}; the nearest is {catalogue.nearest(name)!r}", param="name"
        )
    if not server.pulls.start(entry):
        raise InvalidRequest("another model is being fetched; wait until it ends", param="name")
    return await list_catalogue(server, context)
