"""The table of models by name, and the pool that runs them.

The pool routes each validated request to a model that answers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog

from agent_server.admission.admitted_engine import AdmittedEngine
from agent_server.engine_protocol import Chunks, TokenCount
from agent_server.errors import EngineTimeout, EngineUnavailable, NotFound, RateLimited, Unsupported
from agent_server.metering.request_context import RequestContext
from agent_server.models.measurements import CardStore
from agent_server.models.served_model import ServedModel
from agent_server.schemas.chat import ChatRequest, PromptFields, TokenizePrompt
from agent_server.schemas.chat_answer import ModelAnswer
from agent_server.schemas.texts import CompletionRequest
from agent_server.settings.models import ModelConfig, settings_of_models
from terrarium.config import Config

EngineFactory = Callable[[str, ModelConfig], AdmittedEngine]
"""Makes the engine of a model from its name and settings. Raises ConfigError."""

LOCAL_PREFIX = "local"
"""Prefix of a name that means a model of the table, never an alias."""


class ModelTable:
    """Models by name, and aliases. `NAME:X` is the model X at the upstream of the model NAME."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        aliases: Mapping[str, tuple[str, ...]],
        default: str,
    ) -> None:
        self.models = models
        self.aliases = aliases
        self.default = models[default]

    @classmethod
    def from_config(
        cls, config: Config, make: EngineFactory, previous: ModelTable | None = None
    ) -> ModelTable:
        """Make the table of `[model]`; models of `previous` with equal settings are kept running.

        Raises ConfigError.
        """
        default, settings = settings_of_models(config)
        kept, store = previous.models if previous else {}, CardStore(config.data)
        models = {
            name: kept[name]
            if name in kept and kept[name].settings == wanted
            else ServedModel(name, make(name, wanted), wanted, store=store)
            for name, wanted in settings.items()
        }
        aliases = {
            name: (targets,) if isinstance(targets, str) else tuple(targets)
            for name, targets in default.aliases.items()
        }
        return cls(models, aliases, default.name)

    def resolve(self, name: str | None) -> tuple[ServedModel, ...]:
        """Return the models to try in this order until one answers. Raises NotFound.

        None is the default model; an alias may stand for several models.
        """
        if name is None:
            name = self.default.name
        targets = self.aliases.get(name, (name,))
        found = [self._model(target) for target in targets]
        models = tuple(model for model in found if model is not None)
        if len(models) < len(targets):
            raise NotFound(
                f"no model is called {name!r}; this server has {', '.join(self.names())}",
                param="model",
                code="model_not_found",
            )
        return models

    def names(self) -> list[str]:
        """All names of the table, models first."""
        return [*self.models, *(alias for alias in self.aliases if alias not in self.models)]

    def _model(self, name: str) -> ServedModel | None:
        if name in self.models:
            return self.models[name]
        prefix, colon, rest = name.partition(":")
        if not colon:
            return None
        if prefix == LOCAL_PREFIX:
            return self.models.get(rest)
        model = self.models.get(prefix)
        # An upstream with a configured model serves that one only.
        if model is None or not rest or not model.settings.urls or model.settings.upstream_model:
            return None
        return model.for_upstream_model(rest)


log = structlog.get_logger()

FALLBACK_ERRORS = (EngineUnavailable, EngineTimeout, RateLimited, Unsupported)
"""Errors after which the next model of a chain is tried, if they come before the first chunk."""

BUSY_POLL_INTERVAL = 0.2
"""Seconds between checks whether a removed model has finished its answers."""

Begin = Callable[[ServedModel], Chunks]


class ModelPool:
    """All models of the table, with their engines running."""

    def __init__(self, table: ModelTable) -> None:
        self.table = table
        self._leave: dict[ServedModel, asyncio.Event] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def name(self) -> str:
        """The default model's name."""
        return self.table.default.name

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start and stop the models' engines."""
        async with asyncio.TaskGroup() as self._tasks:
            self._sync_tasks()
            try:
                yield
            finally:
                for leave in self._leave.values():
                    leave.set()
                self._tasks = None

    def set_table(self, table: ModelTable) -> None:
        """Replace the table; models that are not in the new one stop when their answers end."""
        self.table = table
        self._sync_tasks()

    async def answer(self, request: ChatRequest, context: RequestContext) -> ModelAnswer:
        """Start an answer; return once its first chunk has arrived. Raises ApiError."""
        request.require_known()
        return await self._ask(request.model, lambda model: model.answer(request, context))

    async def complete(self, request: CompletionRequest, context: RequestContext) -> ModelAnswer:
        """Start the continuation of bare texts, as chat chunks. Raises ApiError."""
        request.require_known()
        return await self._ask(request.model, lambda model: model.complete(request, context))

    async def count(
        self, request: PromptFields | TokenizePrompt, context: RequestContext
    ) -> TokenCount:
        """Count the tokens of a text, or those that a chat request would send to the engine."""
        return await self.table.resolve(request.model)[0].count(request, context)

    async def embeddings(self, body: Mapping[str, Any], context: RequestContext) -> dict[str, Any]:
        """Embed texts with the model that `body` names. Raises ApiError."""
        return await self.table.resolve(body.get("model"))[0].embeddings(body, context)

    async def ready(self) -> bool:
        """Return whether the default model has been described and can generate now."""
        model = self.table.default
        return model.is_learned and await model.engine.ready()

    @property
    def trouble(self) -> str:
        """The reason why the default model cannot be used, "" unless only its owner can fix it."""
        return self.table.default.trouble

    async def _ask(self, name: str | None, begin: Begin) -> ModelAnswer:
        """Return the answer of the first model of a chain that starts one; the last may raise."""
        *others, last = self.table.resolve(name)
        for model in others:
            try:
                return await ModelAnswer.start(model.name, begin(model))
            except FALLBACK_ERRORS as error:
                log.warning("routing.next", model=model.name, status=error.status)
        return await ModelAnswer.start(last.name, begin(last))

    def _sync_tasks(self) -> None:
        """Start the models of the table that do not run, and tell all others to stop."""
        if self._tasks is None:
            return
        wanted = set(self.table.models.values())
        for model in self._leave.keys() - wanted:
            self._leave.pop(model).set()
        for model in wanted - self._leave.keys():
            self._leave[model] = leave = asyncio.Event()
            self._tasks.create_task(self._run_model(model, leave))

    async def _run_model(self, model: ServedModel, leave: asyncio.Event) -> None:
        async with model.engine.lifespan():
            learning = asyncio.create_task(model.detect_capabilities())
            try:
                await leave.wait()
                learning.cancel()  # its own test questions must not keep the engine busy
                # A removed model finishes its answers; at a shutdown (no task group) none waits.
                while self._tasks is not None and model.engine.is_busy:  # noqa: ASYNC110
                    await asyncio.sleep(BUSY_POLL_INTERVAL)
            finally:
                learning.cancel()
                await asyncio.wait({learning})
                model.save_measurements()
