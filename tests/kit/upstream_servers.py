"""Scripted servers with the API differences of vLLM, SGLang, llama-server, Ollama, OpenRouter and
LiteLLM.

They differ in the model card, the reaction to a wrong model name, the counting of tokens, and in
how they send thoughts, calls and usage, and refuse tools. Sources:
vllm/entrypoints/openai/protocol.py, sglang/srt/entrypoints/openai/protocol.py, llama.cpp's
tools/server/README.md, Ollama's docs/api.md and docs/openai.md,
https://openrouter.ai/docs/api-reference and https://docs.litellm.ai/docs/proxy/model_management.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.kit.openai_wire import call_delta, chat_choice, error_object, event, words
from tests.kit.serving import serving

Kind = Literal["vllm", "sglang", "llama-server", "ollama", "openrouter", "litellm"]

MODELS: Mapping[Kind, str] = {
    "vllm": "Qwen/Qwen3-8B",
    "sglang": "qwen/qwen3-8b",
    "llama-server": "/models/qwen3-8b.gguf",
    "ollama": "qwen3:8b",
    "openrouter": "qwen/qwen3-8b",
    "litellm": "qwen3-8b",
}
WINDOW = 40960

_NO_PARSER = "requires --enable-auto-tool-choice and --tool-call-parser to be set"
_BAD = {"object": "error", "type": "BadRequestError", "param": None, "code": 400}
_NO_JINJA = {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}
_NO_ENDPOINT = {"message": "No endpoints found that support tool use.", "code": 404}

TOOLS_REFUSED: Mapping[Kind, tuple[int, dict[str, Any]]] = {
    "vllm": (400, {**_BAD, "message": f'"auto" tool choice {_NO_PARSER}'}),
    "llama-server": (500, {"error": _NO_JINJA}),
    "ollama": (400, error_object("registry.ollama.ai/library/qwen3:8b does not support tools")),
    "openrouter": (404, {"error": _NO_ENDPOINT}),
}
"""Status and body of the answer to tools where the model or the server takes none."""

CALL = {"name": "lookup", "arguments": '{"word": "ada"}'}
"""The call with which a question with tools is answered."""


@dataclass(slots=True)
class UpstreamServer:
    """One server: its URL, and the bodies and headers of the chats that it received.

    It answers with `text`, by default the name of its kind, after a thought; with a call if there
    are tools. `replies` are sent instead of the next answers. Ollama has the model loaded from the
    first chat on. `parameters` are those of Ollama's model, as lines.
    """

    kind: Kind
    url: str = ""
    text: str = ""
    takes_tools: bool = True
    is_loaded: bool = False
    parameters: str = ""
    replies: deque[Response] = field(default_factory=deque)
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
            routes.append(Route("/api/ps", self._running))
        elif self.kind == "litellm":
            routes.append(Route("/v1/model/info", self._deployments))
        elif self.kind != "openrouter":
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
            "openrouter": {
                "context_length": 4 * WINDOW,
                "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
                "top_provider": {"context_length": WINDOW, "max_completion_tokens": None},
                "supported_parameters": ["max_tokens", "reasoning", "tool_choice", "tools"],
            },
            "litellm": {"owned_by": "openai"},
        }
        card = {"id": self.model, "object": "model", "created": 0, **cards[self.kind]}
        return JSONResponse({"object": "list", "data": [card]})

    async def _props(self, _request: Request) -> Response:
        able = {
            "chat_template_caps": {"supports_tool_calls": True},
            "modalities": {"vision": False},
        }
        return JSONResponse({"default_generation_settings": {"n_ctx": WINDOW}, **able})

    async def _show(self, request: Request) -> Response:
        if (await request.json()).get("model") != self.model:
            return JSONResponse({"error": "model not found"}, 404)
        model = {"general.architecture": "qwen3", "qwen3.context_length": 262_144}
        card = {"details": {"parameter_size": "8.2B"}, "model_info": model}
        able = ["completion", "tools", "thinking"]
        return JSONResponse({"parameters": self.parameters, "capabilities": able, **card})

    async def _deployments(self, _request: Request) -> Response:
        facts = {"supports_function_calling": True, "supports_reasoning": True}
        deployments = [
            {"model_name": name, "model_info": {**facts, "max_input_tokens": tokens}}
            for name, tokens in ((self.model, 2 * WINDOW), (self.model, WINDOW), ("other", 9))
        ]
        return JSONResponse({"data": deployments})

    async def _running(self, _request: Request) -> Response:
        model = {"name": self.model, "model": self.model, "context_length": WINDOW}
        return JSONResponse({"models": [model] if self.is_loaded else []})

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
        self.is_loaded = True
        if self.replies:
            return self.replies.popleft()
        if body.get("tools") and not self.takes_tools:
            status, refusal = TOOLS_REFUSED[self.kind]
            return JSONResponse(refusal, status)
        return StreamingResponse(self._events(body), media_type="text/event-stream")

    async def _events(self, body: Mapping[str, Any]) -> AsyncIterator[str]:
        head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": self.model}
        if self.kind == "openrouter":
            yield ": OPENROUTER PROCESSING\n\n"
        for delta in self._deltas(body):
            yield event({**head, "choices": [chat_choice(delta)]})
        finish = "tool_calls" if body.get("tools") else "stop"
        yield event({**head, "choices": [chat_choice({"content": ""}, finish)]})
        usage: dict[str, Any] = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
        last: dict[str, Any] = {**head, "choices": [], "usage": usage}
        if self.kind == "vllm":
            usage |= {"prompt_tokens_details": None}
        if self.kind == "llama-server":
            last["timings"] = {"prompt_n": 100, "prompt_ms": 20.0, "predicted_n": 5}
        if self.kind == "openrouter":
            usage |= {"cost": 0.0001, "completion_tokens_details": {"reasoning_tokens": 2}}
            last["choices"] = [chat_choice({"role": "assistant", "content": ""})]
        yield event(last)
        yield "data: [DONE]\n\n"

    def _deltas(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        said = {"role": "assistant", "content": ""}
        content = ("sglang", "llama-server", "litellm")
        key = "reasoning_content" if self.kind in content else "reasoning"
        thought: dict[str, Any] = {key: "hm"}
        if self.kind == "openrouter":
            thought["reasoning_details"] = [{"type": "reasoning.text", "text": "hm", "index": 0}]
        yield said | thought
        if not body.get("tools"):
            yield said | {"content": self.text or self.kind}
        elif self.kind == "ollama":
            yield said | call_delta(0, {"id": "call_1", "type": "function", "function": CALL})
        else:
            begun = {"name": CALL["name"], "arguments": ""}
            yield call_delta(0, {"id": "call_1", "type": "function", "function": begun})
            yield call_delta(0, {"function": {"arguments": CALL["arguments"]}})


def sent_events(*chunks: Mapping[str, Any], end: str = "data: [DONE]\n\n") -> Response:
    """Return the reply with one event for each chunk, and with the end of a stream."""
    return Response("".join(map(event, chunks)) + end, media_type="text/event-stream")


@asynccontextmanager
async def upstream_server(kind: Kind) -> AsyncIterator[UpstreamServer]:
    """Run a server of one kind on a free port."""
    server = UpstreamServer(kind)
    async with serving(Starlette(routes=server.routes())) as server.url:
        yield server
