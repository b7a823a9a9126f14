"""GET /v1/models and POST /tokenize: what the model is, and what a prompt costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Discriminator, Tag

from agent_server.engine_protocol import Traits
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.embeddings import installed
from agent_server.engines.embeddings_child import LONGEST
from agent_server.models.pool import Mind
from agent_server.models.served_model import Model
from agent_server.routes.dependencies import TheMind
from agent_server.schemas.chat import TokenizeMessages, TokenizePrompt
from agent_server.schemas.responses import ModelCard, ModelList, Tokens, answers

router = APIRouter()


def _shape(body: Any) -> str:
    return "chat body" if isinstance(body, dict) and "messages" in body else "text body"


Countable = Annotated[
    Annotated[TokenizeMessages, Tag("chat body")] | Annotated[TokenizePrompt, Tag("text body")],
    Discriminator(_shape),
]


@router.get("/v1/models", responses=answers(ModelList))
async def models(request: Request, mind: TheMind) -> dict[str, Any]:
    """List the models and their aliases."""
    names = [*mind.routes.names(), *([EMBEDDER] if installed() else [])]
    return {"object": "list", "data": [_card(request, mind, name) for name in names]}


@router.get("/v1/models/{name:path}", responses=answers(ModelCard))
async def model(request: Request, name: str, mind: TheMind) -> dict[str, Any]:
    """Describe one model."""
    return _card(request, mind, name)


@router.post("/tokenize", responses=answers(Tokens))
async def tokenize(body: Countable, mind: TheMind) -> dict[str, Any]:
    """Count the tokens of a prompt, or of what a chat request would send to the engine.

    The shape is vLLM's: `{"prompt"}` or `{"messages", "tools"?}`.
    """
    counted = await mind.count(body)
    return {"count": counted.count, "max_model_len": counted.limit, "tokens": list(counted.tokens)}


def _card(request: Request, mind: Mind, name: str) -> dict[str, Any]:
    if name == EMBEDDER and installed():
        can: Mapping[str, Any] = {"embeddings": True}
        root, longest, more = name, LONGEST, _about(None)
    else:
        model = mind.routes.find(name)[0]
        can, longest = model.capabilities.as_wire(), model.capabilities.context
        root, more = model.name, _about(model)
    return {
        "id": name,
        "object": "model",
        "created": request.app.state.started,
        "owned_by": "terrarium",
        "root": root,
        "max_model_len": longest,
        "window": longest,
        **more,
        "capabilities": can,
    }


def _about(model: Model | None) -> dict[str, Any]:
    """What tells how large a prompt may be, and what there is to say of the model to people."""
    traits = model.traits if model else Traits()
    rate = model.prompt_tokens_per_second if model else None
    return {
        "parameters": traits.parameters,
        "prompt_tokens_per_second": round(rate, 1) if rate else None,
        "weights": traits.weights,
        "gpus": None if traits.gpus is None else [gpu.name for gpu in traits.gpus],
        "better": model.better if model else None,
    }
