"""Scripted servers with the API differences of vLLM, SGLang, llama-server and Ollama.

They differ in the model card, the reaction to a wrong model name, and the counting of tokens.
Sources: vllm/entrypoints/openai/protocol.py, sglang/srt/entrypoints/openai/protocol.py, llama.cpp's
tools/server/README.md, Ollama's docs/api.md and docs/openai.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.kit.openai_wire import chat_choice, error_object, event, words
from tests.kit.serving import serving

Kind = Literal["vllm", "sglang", "llama-server", "ollama"]

MODELS: Mapping[Kind, str] = {
    "vllm": "Qwen/Qwen3-8B",
    "sglang": "qwen/qwen3-8b",
    "llama-server": "/models/qwen3-8b.gguf",
    "ollama": "qwen3:8b",
}
WINDOW = 32768


@dataclass(slots=True)
class UpstreamServer:
    """One server: its URL, and the bodies and headers of the chats that it received."""

    kind: Kind
    url: str = ""
    chats: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def routes(self) -> list[Route]:
        """Return the endpoints of this kind of server."""
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models),
        ]
        if self.kind == "llama-server":
            routes.append(Route("/props", self._props))
            routes.append(Route("/apply-template", self._template, methods=["POST"]))
        if self.kind == "ollama":
            routes.append(Route("/api/show", self._show, methods=["POST"]))
        else:
            routes.append(Route("/tokenize", self._tokenize, methods=["POST"]))
        return routes

    @property
    def model(self) -> str:
        """The name of the served model."""
        return MODELS[self.kind]

    async def _models(self, _request: Request) -> Response:
        cards: Mapping[Kind, dict[str, Any]] = {
            "vllm": {"owned_by": "vllm", "root": self.model, "max_model_len": WINDOW},
            "sglang": {"owned_by": "sglang", "root": self.model, "max_model_len": WINDOW},
            "llama-server": {"owned_by": "llamacpp", "meta": {"n_params": 8_190_735_360}},
            "ollama": {"owned_by": "library"},
        }
        card = {"id": self.model, "object": "model", "created": 0, **cards[self.kind]}
        return JSONResponse({"object": "list", "data": [card]})

    async def _props(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "default_generation_settings": {"n_ctx": WINDOW},
                "chat_template_caps": {"supports_tool_calls": True},
                "modalities": {"vision": False},
            }
        )

    async def _show(self, request: Request) -> Response:
        if (await request.json()).get("model") != self.model:
            return JSONResponse({"error": "model not found"}, 404)
        able = ["completion", "tools", "thinking"]
        return JSONResponse({"capabilities": able, "details": {"parameter_size": "8.2B"}})

    async def _template(self, request: Request) -> Response:
        messages = (await request.json())["messages"]
        return JSONResponse({"prompt": " ".join(each["content"] for each in messages)})

    async def _tokenize(self, request: Request) -> Response:
        body = await request.json()
        if self.kind == "llama-server":  # reads `content` only and ignores other fields
            return JSONResponse({"tokens": list(range(words(body.get("content", ""))))})
        if "prompt" not in body and "messages" not in body:
            return JSONResponse(error_object("prompt or messages: field required"), 400)
        count = words(body.get("messages", body.get("prompt")))
        tokens = list(range(count))
        return JSONResponse({"count": count, "max_model_len": WINDOW, "tokens": tokens})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        if self.kind != "llama-server" and body["model"] != self.model:
            text = f"The model `{body['model']}` does not exist."
            return JSONResponse(error_object(text), 404)
        self.chats.append(body)
        self.headers.append(dict(request.headers))
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": self.model}
        yield event({**head, "choices": [chat_choice({"role": "assistant", "content": self.kind})]})
        yield event({**head, "choices": [chat_choice({}, "stop")]})
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        yield event({**head, "choices": [], "usage": usage})
        yield "data: [DONE]\n\n"


@asynccontextmanager
async def upstream_server(kind: Kind) -> AsyncIterator[UpstreamServer]:
    """Run a server of one kind on a free port."""
    server = UpstreamServer(kind)
    async with serving(Starlette(routes=server.routes())) as server.url:
        yield server
