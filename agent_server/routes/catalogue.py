"""GET /v1/catalogue: models to fetch; POST .../{name}/pull and /use: to fetch and to use one."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from agent_server.errors import Forbidden, InvalidRequest, NotFound
from agent_server.metering.request_context import RequestContext
from agent_server.model_catalogue import catalogue
from agent_server.model_catalogue.catalogue import CatalogueEntry
from agent_server.model_catalogue.machine import Machine
from agent_server.routes.dependencies import Context, Server
from agent_server.schemas.responses import ERRORS

router = APIRouter(responses=ERRORS)


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
    is_used: bool = Field(description="whether it is the default model")
    bytes: int = Field(description="how many of the file have arrived")
    is_pulling: bool
    trouble: str = Field(description='why it could not be fetched or used, "" for none')


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
    default = server.pool.table.default
    machine = Machine.here(default.info.gpus or ())
    return CatalogueList(
        data=[
            CatalogueModel.model_validate(
                catalogue.describe(entry, machine)
                | server.pulls.state(entry)
                | {"is_used": entry.file == f"{default.info.weights}.gguf"}
            )
            for entry in catalogue.entries()
        ]
    )


@router.post("/v1/catalogue/{name}/pull")
async def pull(name: str, server: Server, context: Context) -> CatalogueList:
    """Begin to fetch a model of the catalogue, which is checked against its SHA-256; one at a time.
    For the operator's own keys."""
    entry = _find(name, context)
    if not server.pulls.start(entry):
        raise InvalidRequest("another model is being fetched; wait until it ends", param="name")
    return await list_catalogue(server, context)


@router.post("/v1/catalogue/{name}/use")
async def use(name: str, server: Server, context: Context) -> CatalogueList:
    """Load a model of the catalogue that is here, and make it the default model once it can answer,
    until the server stops or its configuration changes. For the operator's own keys."""
    entry = _find(name, context)
    if not server.pulls.state(entry)["is_here"]:
        raise InvalidRequest(f"{entry.name} is not here; pull it first", param="name")
    troubles = server.pulls.troubles
    troubles.pop(entry.name, None)
    server.pool.use(
        server.pulls.folder / entry.file, lambda why: troubles.update({entry.name: why})
    )
    return await list_catalogue(server, context)


def _find(name: str, context: RequestContext) -> CatalogueEntry:
    if not context.sees_all:
        raise Forbidden("models are chosen by the operator's own keys only")
    if entry := catalogue.find(name):
        return entry
    near = catalogue.nearest(name)
    raise NotFound(f"no model is called {name!r}; the nearest is {near!r}", param="name")
