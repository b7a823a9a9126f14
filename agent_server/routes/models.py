"""GET /v1/models and POST /tokenize: model cards and token counts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Discriminator, Tag
from starlette.responses import Response

from agent_server.engine_protocol import ModelInfo
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.embeddings_child import MAX_TEXT_TOKENS
from agent_server.http.responses import JsonBody
from agent_server.routes.dependencies import BodyRoute, Context, Server, ServerState
from agent_server.schemas.chat import PromptFields, TokenizePrompt
from agent_server.schemas.responses import ERRORS, ModelList, ModelObject, TokenizeResponse, answers

router = APIRouter(route_class=BodyRoute, responses=ERRORS)

Countable = Annotated[
    Annotated[PromptFields, Tag("chat body")] | Annotated[TokenizePrompt, Tag("text body")],
    Discriminator(
        lambda body: "chat body" if isinstance(body, dict) and "messages" in body else "text body"
    ),
]


@router.get("/v1/models", responses=answers(ModelList))
async def models(server: Server) -> dict[str, Any]:
    """List the models and their aliases."""
    names = [*server.pool.table.names(), *([EMBEDDER] if await server.embedder.ready() else [])]
    return {"object": "list", "data": [await _card(server, name) for name in names]}


@router.get("/v1/models/{name:path}", responses=answers(ModelObject))
async def model(name: str, server: Server) -> dict[str, Any]:
    """Describe one model."""
    return await _card(server, name)


@router.post("/tokenize", response_model=None, responses=answers(TokenizeResponse))
async def tokenize(request: Request, body: Countable, server: Server, context: Context) -> Response:
    """Count the tokens of a prompt, or of what a chat request would send to the engine.

    The shape is vLLM's: `{"prompt"}` or `{"messages", "tools"?}`.
    """
    found = await server.pool.count(body, context)
    counted = {"count": found.count, "max_model_len": found.limit, "tokens": list(found.tokens)}
    return JsonBody(counted | ({"estimated": True} if found.is_estimate else {}))


async def _card(server: ServerState, name: str) -> dict[str, Any]:
    info, rate, profile, better = ModelInfo(), None, None, None
    can: dict[str, Any] = {"embeddings": True}
    root, longest = name, MAX_TEXT_TOKENS
    if name != EMBEDDER or not await server.embedder.ready():
        model = server.pool.table.resolve(name)[0]
        await model.refresh()
        can, longest = model.capabilities.as_wire(), model.capabilities.context
        root, info, rate = model.name, model.info, model.prompt_tokens_per_second
        profile, better = model.settings.profile, model.better
    return {
        "id": name,
        "object": "model",
        "created": server.started,
        "owned_by": "terrarium",
        "root": root,
        "max_model_len": longest,
        "window": longest,
        "parameters": info.parameters,
        "prompt_tokens_per_second": round(rate, 1) if rate else None,
        "profile": profile,
        "weights": info.weights,
        "gpus": None if info.gpus is None else [gpu.name for gpu in info.gpus],
        "better": better,
        "capabilities": can,
    }
