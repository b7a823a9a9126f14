"""GET /v1/models and POST /tokenize: model cards and token counts; and models to fetch.

GET /v1/catalogue lists these; POST .../{name}/pull and /use fetch and use one.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from starlette.responses import Response

from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.embeddings_child import MAX_TEXT_TOKENS
from agent_server.errors import Forbidden, InvalidRequest, NotFound
from agent_server.http.responses import JsonBody
from agent_server.metering.request_context import RequestContext
from agent_server.model_catalogue import catalogue
from agent_server.model_catalogue.catalogue import CatalogueEntry
from agent_server.model_catalogue.machine import Machine
from agent_server.routes.dependencies import BodyRoute, Context, Server
from agent_server.schemas.chat import PromptFields, TokenizePrompt
from agent_server.schemas.openapi import (
    ERRORS,
    ModelList,
    ModelObject,
    TokenizeResponse,
    answers,
)
from agent_server.server_state import ServerState

router = APIRouter(route_class=BodyRoute, responses=ERRORS)

Countable = Annotated[
    Annotated[PromptFields, Tag("chat body")] | Annotated[TokenizePrompt, Tag("text body")],
    Discriminator(
        lambda body: "chat body" if isinstance(body, dict) and "messages" in body else "text body"
    ),
]


@router.get("/v1/models")
async def models(server: Server) -> ModelList:
    """List the models and their aliases."""
    names = [*server.pool.table.names(), *([EMBEDDER] if await server.embedder.ready() else [])]
    return ModelList(data=[await _card(server, name) for name in names])


@router.get("/v1/models/{name:path}")
async def model(name: str, server: Server) -> ModelObject:
    """Describe one model."""
    return await _card(server, name)


@router.post("/tokenize", responses=answers(TokenizeResponse))
async def tokenize(request: Request, body: Countable, server: Server, context: Context) -> Response:
    """Count the tokens of a prompt, or of what a chat request would send to the engine.

    The shape is vLLM's: `{"prompt"}` or `{"messages", "tools"?}`.
    """
    found = await server.pool.count(body, context)
    counted = {"count": found.count, "max_model_len": found.limit, "tokens": list(found.tokens)}
    return JsonBody(counted | ({"estimated": True} if found.is_estimate else {}))


async def _card(server: ServerState, name: str) -> ModelObject:
    if name == EMBEDDER and await server.embedder.ready():
        return ModelObject(
            id=name,
            created=server.started,
            root=name,
            max_model_len=MAX_TEXT_TOKENS,
            window=MAX_TEXT_TOKENS,
            capabilities={"embeddings": True},
        )
    model = server.pool.table.resolve(name)[0]
    await model.refresh()
    info, able, rate = model.info, model.capabilities, model.prompt_tokens_per_second
    return ModelObject(
        id=name,
        created=server.started,
        root=model.name,
        max_model_len=able.context,
        window=able.context,
        parameters=info.parameters,
        prompt_tokens_per_second=round(rate, 1) if rate else None,
        profile=model.settings.profile,
        weights=info.weights,
        gpus=None if info.gpus is None else [gpu.name for gpu in info.gpus],
        better=model.better,
        capabilities=able.as_wire(),
    )


class CatalogueModel(CatalogueEntry):
    """A model that can be fetched; sizes are in bytes."""

    model_config = ConfigDict(extra="ignore")

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
