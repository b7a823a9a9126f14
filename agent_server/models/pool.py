"""The table of models by name, and the pool that runs them.

The pool routes each validated request to a model that answers it, and follows the table's file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from agent_server.admission.admitted_engine import AdmittedEngine
from agent_server.engine_protocol import Chunks, TokenCount
from agent_server.errors import (
    EngineMisconfigured,
    EngineTimeout,
    EngineUnavailable,
    NotFound,
    RateLimited,
    ToolsRefused,
    Unsupported,
)
from agent_server.metering.accounts import Metering
from agent_server.metering.request_context import RequestContext
from agent_server.models.capabilities import MeasurementStore
from agent_server.models.served_model import ServedModel
from agent_server.schemas.chat import ChatRequest, PromptFields, TokenizePrompt
from agent_server.schemas.chat_answer import ModelAnswer
from agent_server.schemas.texts import CompletionRequest
from agent_server.settings.models import ModelConfig, ModelSettings, settings_of_models
from agent_server.settings.prices import UsageSettings
from storage.db.errors import Unavailable
from terrarium.config import Config, ConfigError, load
from terrarium.file_watcher import changes

log = structlog.get_logger()

EngineFactory = Callable[[str, ModelConfig], AdmittedEngine]
"""Makes the engine of a model from its name and settings. Raises ConfigError."""

LOCAL_PREFIX = "local"
"""Prefix of a name that means a model of the table, never an alias."""


@dataclass(frozen=True, slots=True)
class ModelTable:
    """Models by name, aliases, and the `default` model. `NAME:X` is the model X at the upstream of
    the model NAME."""

    models: Mapping[str, ServedModel]
    aliases: Mapping[str, tuple[str, ...]]
    default: ServedModel

    @classmethod
    def from_config(
        cls,
        config: Config,
        make: EngineFactory,
        previous: ModelTable | None = None,
        *,
        stand_in: bool = False,
        chosen: Path | None = None,
    ) -> ModelTable:
        """Make the table of `[model]`; models of `previous` with equal settings are kept running.
        `stand_in` and `chosen` are as of `settings_of_models`. Raises ConfigError."""
        default, settings = settings_of_models(config, stand_in=stand_in, chosen=chosen)
        kept, store = previous.models if previous else {}, MeasurementStore(config.data)
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
        return cls(models, aliases, models[default.name])

    def resolve(self, name: str | None) -> Sequence[ServedModel]:
        """Return the models to try in this order until one answers. Raises NotFound.

        None is the default model; an alias may stand for several models.
        """
        if name is None:
            name = self.default.name
        models = []
        for target in self.aliases.get(name, (name,)):
            prefix, _, rest = target.partition(":")
            model = self.models.get(target)
            if model is None and rest and prefix == LOCAL_PREFIX:
                model = self.models.get(rest)
            elif model is None and rest and (other := self.models.get(prefix)):
                # An upstream with a configured model serves that one only.
                is_open = other.settings.urls and not other.settings.upstream_model
                model = other.for_upstream_model(rest) if is_open else None
            if model is None:
                raise NotFound(
                    f"no model is called {name!r}; this server has {', '.join(self.names())}",
                    param="model",
                    code="model_not_found",
                )
            models.append(model)
        return models

    def names(self) -> list[str]:
        """All names of the table, models first."""
        return [*self.models, *(alias for alias in self.aliases if alias not in self.models)]


FALLBACK_ERRORS = (EngineUnavailable, EngineTimeout, RateLimited, ToolsRefused, Unsupported)
"""Errors after which the next model of a chain is tried, if they come before the first chunk."""

BUSY_POLL_INTERVAL = 0.2
"""Seconds between checks whether a removed model has ended its answers, or a new one is ready."""

LOAD_TIMEOUT = 120.0
"""Seconds that a new default model may take to load while the previous one answers."""


class ModelPool:
    """All models of the table, with their engines running. Raises ConfigError.

    With `stand_in` the built-in model answers until the file of the default model is there.
    """

    def __init__(
        self,
        config: Config,
        make: EngineFactory,
        metering: Metering,
        *,
        stand_in: bool = False,
    ) -> None:
        self._config = config
        self._make = make
        self._metering = metering
        self._stand_in = stand_in
        self.table = ModelTable.from_config(config, make, stand_in=stand_in)
        self._leave: dict[ServedModel, asyncio.Event] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._changes: set[asyncio.Task[None]] = set()  # of the table
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start and stop the models' engines, and follow the file of the table meanwhile."""
        async with asyncio.TaskGroup() as self._tasks:
            self._start(self.table)
            self._change(self._follow())
            try:
                yield
            finally:
                for change in self._changes:
                    change.cancel()
                for leave in self._leave.values():
                    leave.set()
                self._tasks = None

    async def _follow(self) -> None:
        """Reload the table when its file changes, and on SIGHUP; with a stand-in also when the file
        of the default model is there.

        Only `[model]` and `[usage]` are read again. An invalid table is logged and changes nothing;
        models that are not in the new one stop when their answers end.
        """
        path = self._config.path
        file = self._config.section(ModelSettings).file if self._stand_in else None
        watched = [each for each in (path, file) if each]
        if not watched:
            return
        async with aclosing(changes(lambda: watched)) as changed:
            async for _ in changed:
                async with self._changing:
                    config = self._config
                    try:
                        fresh = load(path, config.data) if path else config
                        tables = {**config.tables, "model": fresh.tables.get("model", {})}
                        config = replace(config, tables=tables)
                        table = ModelTable.from_config(
                            config, self._make, self.table, stand_in=self._stand_in
                        )
                        await self._metering.change(fresh.section(UsageSettings))
                    except (ConfigError, Unavailable) as error:
                        log.warning("routing.kept", reason=str(error))
                    else:
                        self._config = config
                        await self._adopt(table)

    def use(self, file: Path, on_failure: Callable[[str], None]) -> None:
        """Begin to load a GGUF file as the default model, until this process ends or the file of
        the table changes, after what is being loaded already; if it cannot be loaded, the table
        stays."""

        async def load() -> None:
            async with self._changing:
                try:
                    table = ModelTable.from_config(
                        self._config, self._make, self.table, chosen=file
                    )
                except ConfigError as error:
                    on_failure(str(error))
                else:
                    await self._adopt(table, on_failure)

        self._change(load())

    def _change(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a change of the table, which ends at a shutdown."""
        assert self._tasks is not None
        change = self._tasks.create_task(work)
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)

    async def _adopt(
        self, table: ModelTable, on_failure: Callable[[str], None] | None = None
    ) -> None:
        """Replace the table once its default model can answer."""
        self._start(table)
        await self._until_loaded(table.default)
        if on_failure and table.default.trouble:
            on_failure(table.default.trouble)
            table = self.table
        self.table = table
        for model in self._leave.keys() - set(table.models.values()):
            self._leave.pop(model).set()
        log.info("routing.changed", models=table.names())

    async def _until_loaded(self, model: ServedModel) -> None:
        """Wait until the embedded engine of a new default model can answer, so that the previous
        one answers meanwhile; not for one that cannot be loaded, and not for longer than
        `LOAD_TIMEOUT`."""
        before = self.table.default
        if model is before or model.settings.urls or not await before.engine.ready():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LOAD_TIMEOUT):
                while not (model.is_learned and await model.engine.ready()):
                    if model.trouble:
                        return
                    await asyncio.sleep(BUSY_POLL_INTERVAL)

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

    async def require_ready(self) -> None:
        """Check that the default model has been described and can generate now. Raises
        EngineMisconfigured if only the operator can change that, else EngineUnavailable."""
        model = self.table.default
        if not model.is_learned or not await model.engine.ready():
            if model.trouble:
                raise EngineMisconfigured(model.trouble)
            raise EngineUnavailable("the model is not there yet")

    async def _ask(self, name: str | None, begin: Callable[[ServedModel], Chunks]) -> ModelAnswer:
        """Return the answer of the first model of a chain that starts one; the last may raise."""
        *others, last = self.table.resolve(name)
        for model in others:
            try:
                return await ModelAnswer.start(model.name, begin(model))
            except FALLBACK_ERRORS as error:
                log.warning("routing.next", model=model.name, status=error.status)
        return await ModelAnswer.start(last.name, begin(last))

    def _start(self, table: ModelTable) -> None:
        """Start the models of a table that do not run."""
        assert self._tasks is not None
        for model in set(table.models.values()) - self._leave.keys():
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
