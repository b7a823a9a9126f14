"""GET /v1/models and POST /tokenize: model cards and token counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Discriminator, Tag

from agent_server.engine_protocol import ModelInfo
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.embeddings_child import MAX_TEXT_TOKENS
from agent_server.models.served_model import ServedModel
from agent_server.routes.dependencies import Context, ModelPoolDep, Server, ServerState
from agent_server.schemas.chat import TokenizeMessages, TokenizePrompt
from agent_server.schemas.responses import ModelList, ModelObject, TokenizeResponse, answers

router = APIRouter()


def _shape(body: Any) -> str:
    return "chat body" if isinstance(body, dict) and "messages" in body else "text body"


Countable = Annotated[
    Annotated[TokenizeMessages, Tag("chat body")] | Annotated[TokenizePrompt, Tag("text body")],
    Discriminator(_shape),
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


@router.post("/tokenize", responses=answers(TokenizeResponse))
async def tokenize(body: Countable, pool: ModelPoolDep, context: Context) -> dict[str, Any]:
    """Count the tokens of a prompt, or of what a chat request would send to the engine.

    The shape is vLLM's: `{"prompt"}` or `{"messages", "tools"?}`.
    """
    counted = await pool.count(body, context)
    return {"count": counted.count, "max_model_len": counted.limit, "tokens": list(counted.tokens)}


async def _card(server: ServerState, name: str) -> dict[str, Any]:
    if name == EMBEDDER and await server.embedder.ready():
        can: Mapping[str, Any] = {"embeddings": True}
        root, longest, more = name, MAX_TEXT_TOKENS, _about(None)
    else:
        model = server.pool.table.resolve(name)[0]
        await model.refresh()
        can, longest = model.capabilities.as_wire(), model.capabilities.context
        root, more = model.name, _about(model)
    return {
        "id": name,
        "object": "model",
        "created": server.started,
        "owned_by": "terrarium",
        "root": root,
        "max_model_len": longest,
        "window": longest,
        **more,
        "capabilities": can,
    }


def _about(model: ServedModel | None) -> dict[str, Any]:
    """Return the keys of a model card that describe the weights and their speed; None: unknown."""
    info = model.info if model else ModelInfo()
    rate = model.prompt_tokens_per_second if model else None
    return {
        "parameters": info.parameters,
        "prompt_tokens_per_second": round(rate, 1) if rate else None,
        "profile": model.settings.profile if model else None,
        "weights": info.weights,
        "gpus": None if info.gpus is None else [gpu.name for gpu in info.gpus],
        "better": model.better if model else None,
    }
