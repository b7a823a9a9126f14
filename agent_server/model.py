"""One model: its engine, its name, what it can do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from agent_server.capabilities import Capabilities
from agent_server.completion import Head, normalise
from agent_server.constrained.turn import TOOL_KEYS, converse, prepare
from agent_server.engines.base import Chunks, Engine, TokenCount, Traits
from agent_server.errors import ApiError
from agent_server.model_settings import OneModel
from agent_server.reasoning import split_reasoning
from agent_server.requests import ChatRequest, Prompted, TokenizePrompt
from agent_server.text_completions import CompletionRequest, continued
from agent_server.visit import visit

log = structlog.get_logger()

PROMPT_FIELDS = {"messages", "tools", "tool_choice", "parallel_tool_calls"}
PASSED_ON = PROMPT_FIELDS | {
    "frequency_penalty", "logit_bias", "logprobs", "min_p", "n", "presence_penalty",
    "reasoning_effort", "response_format", "seed", "stop", "temperature", "top_k",
    "top_logprobs", "top_p", "verbosity",
}  # fmt: skip

ASK_AGAIN = 2.0
"""Seconds until an engine that could not say what its model can do is asked again."""


class Model:
    """Answers requests, with tool calls and reasoning made whole.

    `upstream_model` asks an upstream of many models for that one.
    """

    def __init__(
        self, name: str, engine: Engine, settings: OneModel, upstream_model: str | None = None
    ) -> None:
        self.name = name
        self.engine = engine
        self.settings = settings
        self.capabilities = Capabilities.of(settings, Traits())
        self._chosen: dict[str, Any] = {"model": upstream_model} if upstream_model else {}

    def variant(self, upstream_model: str) -> Model:
        """The same upstream's other model."""
        return Model(f"{self.name}:{upstream_model}", self.engine, self.settings, upstream_model)

    async def learn(self) -> None:
        """Ask the engine what the model can do, until it says so."""
        while True:
            try:
                self.capabilities = Capabilities.of(self.settings, await self.engine.traits())
            except ApiError:
                await asyncio.sleep(ASK_AGAIN)
            else:
                log.info("model.learned", model=self.name, **self.capabilities.as_wire())
                return

    def answer(self, request: ChatRequest, head: Head, session: str | None) -> Chunks:
        """Stream the answer; the last chunk has the usage. Raises ApiError."""
        self._require_senses(request)
        if not self.settings.urls:
            request.require_no_controls()
        body = self._body(request)

        def ask(wanted: Mapping[str, Any]) -> Chunks:
            return split_reasoning(self.engine.chat(wanted, session))

        if self.capabilities.tools == "native":
            return normalise(ask(body if head.watched else {**body, "stream": False}), head)
        return normalise(converse(ask, body), head)

    def complete(self, request: CompletionRequest, head: Head, session: str | None) -> Chunks:
        """Stream what follows bare texts, as chat chunks. Raises ApiError."""

        def ask(body: Mapping[str, Any]) -> Chunks:
            return self.engine.chat({**self._own(), **body}, session)

        return normalise(continued(ask, request), head)

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Let the engine make embeddings, of the model that is meant. Raises ApiError."""
        asked = {key: value for key, value in body.items() if key != "model"}
        return {**await self.engine.embeddings({**self._chosen, **asked}), "model": self.name}

    async def count(self, request: Prompted | TokenizePrompt) -> TokenCount:
        """Count what a chat request with the same messages and tools would send."""
        if isinstance(request, TokenizePrompt):
            counted = await self.engine.count({**self._chosen, "prompt": request.prompt})
        else:
            self._require_senses(request)
            body = self._offering(_wire(request, PROMPT_FIELDS))
            if self.capabilities.tools != "native":
                body = prepare(body)
            counted = await self.engine.count({**self._chosen, **body})
        return replace(counted, limit=counted.limit or self.capabilities.context)

    def _require_senses(self, request: Prompted) -> None:
        if not self.capabilities.vision:
            request.require_words_only()

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        limit = request.max_completion_tokens or request.max_tokens or self.settings.max_tokens
        return {
            **self._own(),
            **self._offering(_wire(request, PASSED_ON)),
            "max_tokens": limit,
        }

    def _own(self) -> dict[str, Any]:
        """What this model's engine is told besides the request. vLLM takes low numbers first."""
        if not self.settings.priority:
            return self._chosen
        return {**self._chosen, "priority": int(visit().background)}

    def _offering(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without the tools of which the model cannot choose one."""
        free = body.get("tool_choice", "auto") == "auto"
        if free and self.capabilities.tools == "forced":
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
