"""The one mind: takes a checked request to the engine and brings the answer back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_server.completion import Head, normalise
from agent_server.constrained.turn import TOOL_KEYS, converse, prepare
from agent_server.engines.base import Chunks, Engine, TokenCount
from agent_server.errors import NotFound
from agent_server.reasoning import split_reasoning
from agent_server.requests import ChatRequest, Prompted, TokenizePrompt
from agent_server.settings import ModelSettings
from agent_server.text_completions import CompletionRequest, continued

PROMPT_FIELDS = {"messages", "tools", "tool_choice", "parallel_tool_calls"}
PASSED_ON = PROMPT_FIELDS | {
    "frequency_penalty", "logit_bias", "logprobs", "min_p", "n", "presence_penalty",
    "reasoning_effort", "response_format", "seed", "stop", "temperature", "top_k",
    "top_logprobs", "top_p", "verbosity",
}  # fmt: skip


class Mind:
    """One engine under one name, with tool calls and reasoning made whole."""

    def __init__(self, engine: Engine, settings: ModelSettings) -> None:
        self.engine = engine
        self.name = settings.name
        self.context = settings.context
        self._settings = settings

    def require_model(self, name: str | None) -> None:
        """Raise NotFound unless `name` is this model, or no name was given."""
        if name not in (None, self.name):
            raise NotFound(
                f"no model is called {name!r}; this server has {self.name!r}",
                param="model",
                code="model_not_found",
            )

    def answer(self, request: ChatRequest, head: Head, session: str | None) -> Chunks:
        """Stream the answer; the last chunk has the usage. Raises ApiError."""
        request.require_known()
        self.require_model(request.model)
        self._require_senses(request)
        body = self._body(request)

        def ask(wanted: Mapping[str, Any]) -> Chunks:
            return split_reasoning(self.engine.chat(wanted, session))

        if self._settings.tool_mode == "native":
            return normalise(ask(body), head)
        return normalise(converse(ask, body), head)

    def complete(self, request: CompletionRequest, head: Head, session: str | None) -> Chunks:
        """Stream what follows bare texts, as chat chunks. Raises ApiError."""
        request.require_known()
        self.require_model(request.model)

        def ask(body: Mapping[str, Any]) -> Chunks:
            return self.engine.chat(body, session)

        return normalise(continued(ask, request), head)

    async def count(self, request: Prompted | TokenizePrompt) -> TokenCount:
        """Count what a chat request with the same messages and tools would send."""
        self.require_model(request.model)
        if isinstance(request, TokenizePrompt):
            return await self.engine.count({"prompt": request.prompt})
        self._require_senses(request)
        body = self._offering(_wire(request, PROMPT_FIELDS))
        if self._settings.tool_mode != "native":
            body = prepare(body)
        return await self.engine.count(body)

    def _require_senses(self, request: Prompted) -> None:
        """An upstream may see and hear; the embedded engine is loaded without."""
        if not self._settings.upstream:
            request.require_words_only()

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        limit = request.max_completion_tokens or request.max_tokens or self._settings.max_tokens
        return {**self._offering(_wire(request, PASSED_ON)), "max_tokens": limit}

    def _offering(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without the tools of which the model cannot choose one."""
        free = body.get("tool_choice", "auto") == "auto"
        if free and self._settings.tool_mode == "forced":
            return {key: value for key, value in body.items() if key not in TOOL_KEYS}
        return body


def _wire(request: Prompted, fields: set[str]) -> dict[str, Any]:
    """The request as JSON again: what the client set, null content included."""
    dumped = request.model_dump(include=fields, exclude_unset=True, by_alias=True)
    body = {key: value for key, value in dumped.items() if value is not None}
    body["messages"] = [_message(message) for message in body["messages"]]
    return body


def _message(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "developer":
        # Chat templates of open models know the older name only.
        message["role"] = "system"
    if message.get("tool_calls") in (None, []):
        message.pop("tool_calls", None)
    return message
