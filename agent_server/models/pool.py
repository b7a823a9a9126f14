"""The one mind: takes a checked request to a model that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import structlog

from agent_server.engine_protocol import Chunks, TokenCount
from agent_server.errors import EngineTimeout, EngineUnavailable, RateLimited, Unsupported
from agent_server.models.served_model import ServedModel
from agent_server.models.table import ModelTable
from agent_server.schemas.chat import ChatRequest, PromptFields, TokenizePrompt
from agent_server.schemas.chat_answer import ChunkMeta
from agent_server.schemas.completions import CompletionRequest

log = structlog.get_logger()

ELSEWHERE = (EngineUnavailable, EngineTimeout, RateLimited, Unsupported)
"""What lets the next model of a chain try, before the first chunk."""

BUSY_CHECK = 0.2
"""Seconds between looks at whether a model that leaves has ended its answers."""

Begin = Callable[[ServedModel], Chunks]


class ModelPool:
    """All models of the table, running. `head.model` becomes the one that answers."""

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

    def set_routes(self, table: ModelTable) -> None:
        """Route by another table from now on; models it lacks stop when their answers end."""
        self.table = table
        self._sync_tasks()

    def require_model(self, name: str | None) -> None:
        """Raise NotFound unless a model has this name, or no name was given."""
        self.table.resolve(name)

    def answer(self, request: ChatRequest, meta: ChunkMeta, session: str | None) -> Chunks:
        """Stream the answer; the last chunk has the usage. Raises ApiError."""
        request.require_known()
        return self._ask(request.model, meta, lambda model: model.answer(request, meta, session))

    def complete(self, request: CompletionRequest, meta: ChunkMeta, session: str | None) -> Chunks:
        """Stream what follows bare texts, as chat chunks. Raises ApiError."""
        request.require_known()
        return self._ask(request.model, meta, lambda model: model.complete(request, meta, session))

    async def count(self, request: PromptFields | TokenizePrompt) -> TokenCount:
        """Count what a chat request with the same messages and tools would send."""
        return await self.table.resolve(request.model)[0].count(request)

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Let the upstream that `body` names make embeddings. Raises ApiError."""
        return await self.table.resolve(body.get("model"))[0].embeddings(body)

    async def ready(self) -> bool:
        """Whether the default model could make a token now, and it is known what it can do."""
        model = self.table.default
        return model.is_learned and await model.engine.ready()

    def _ask(self, name: str | None, meta: ChunkMeta, begin: Begin) -> Chunks:
        models = self.table.resolve(name)
        meta.model = models[0].name
        return begin(models[0]) if len(models) == 1 else _first(models, meta, begin)

    def _sync_tasks(self) -> None:
        """Start the models of the table that do not run, and let go of the others."""
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
                learning.cancel()  # what it asks by itself must not keep it here
                while self._tasks is not None and model.engine.is_busy:  # noqa: ASYNC110
                    await asyncio.sleep(BUSY_CHECK)
            finally:
                learning.cancel()
                await asyncio.wait({learning})
                model.save_measurements()


async def _first(models: Sequence[ServedModel], meta: ChunkMeta, begin: Begin) -> Chunks:
    """The answer of the first model that begins one."""
    for place, model in enumerate(models):
        meta.model, begun = model.name, False
        try:
            async with aclosing(begin(model)) as chunks:
                async for chunk in chunks:
                    begun = True
                    yield chunk
            return
        except ELSEWHERE as error:
            if begun or place == len(models) - 1:
                raise
            log.warning("routing.next", model=model.name, status=error.status)
