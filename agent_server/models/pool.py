"""The one mind: takes a checked request to a model that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import structlog

from agent_server.engine_protocol import Chunks, TokenCount
from agent_server.errors import EngineTimeout, EngineUnavailable, RateLimited, Unsupported
from agent_server.models.served_model import Model
from agent_server.models.table import Routes
from agent_server.schemas.chat import ChatRequest, Prompted, TokenizePrompt
from agent_server.schemas.chat_answer import Head
from agent_server.schemas.completions import CompletionRequest

log = structlog.get_logger()

ELSEWHERE = (EngineUnavailable, EngineTimeout, RateLimited, Unsupported)
"""What lets the next model of a chain try, before the first chunk."""

BUSY_CHECK = 0.2
"""Seconds between looks at whether a model that leaves has ended its answers."""

Begin = Callable[[Model], Chunks]


class Mind:
    """All models of the table, running. `head.model` becomes the one that answers."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self._leave: dict[Model, asyncio.Event] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def name(self) -> str:
        """The default model's name."""
        return self.routes.default.name

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start and stop the models' engines."""
        async with asyncio.TaskGroup() as self._tasks:
            self._settle()
            try:
                yield
            finally:
                for leave in self._leave.values():
                    leave.set()
                self._tasks = None

    def change(self, routes: Routes) -> None:
        """Route by another table from now on; models it lacks stop when their answers end."""
        self.routes = routes
        self._settle()

    def require_model(self, name: str | None) -> None:
        """Raise NotFound unless a model has this name, or no name was given."""
        self.routes.find(name)

    def answer(self, request: ChatRequest, head: Head, session: str | None) -> Chunks:
        """Stream the answer; the last chunk has the usage. Raises ApiError."""
        request.require_known()
        return self._ask(request.model, head, lambda model: model.answer(request, head, session))

    def complete(self, request: CompletionRequest, head: Head, session: str | None) -> Chunks:
        """Stream what follows bare texts, as chat chunks. Raises ApiError."""
        request.require_known()
        return self._ask(request.model, head, lambda model: model.complete(request, head, session))

    async def count(self, request: Prompted | TokenizePrompt) -> TokenCount:
        """Count what a chat request with the same messages and tools would send."""
        return await self.routes.find(request.model)[0].count(request)

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Let the upstream that `body` names make embeddings. Raises ApiError."""
        return await self.routes.find(body.get("model"))[0].embeddings(body)

    async def ready(self) -> bool:
        """Whether the default model could make a token now, and it is known what it can do."""
        model = self.routes.default
        return model.is_learned and await model.engine.ready()

    def _ask(self, name: str | None, head: Head, begin: Begin) -> Chunks:
        models = self.routes.find(name)
        head.model = models[0].name
        return begin(models[0]) if len(models) == 1 else _first(models, head, begin)

    def _settle(self) -> None:
        """Start the models of the table that do not run, and let go of the others."""
        if self._tasks is None:
            return
        wanted = set(self.routes.models.values())
        for model in self._leave.keys() - wanted:
            self._leave.pop(model).set()
        for model in wanted - self._leave.keys():
            self._leave[model] = leave = asyncio.Event()
            self._tasks.create_task(self._live(model, leave))

    async def _live(self, model: Model, leave: asyncio.Event) -> None:
        async with model.engine.running():
            learning = asyncio.create_task(model.learn())
            try:
                await leave.wait()
                learning.cancel()  # what it asks by itself must not keep it here
                while self._tasks is not None and model.engine.busy:  # noqa: ASYNC110
                    await asyncio.sleep(BUSY_CHECK)
            finally:
                learning.cancel()
                await asyncio.wait({learning})
                model.keep()


async def _first(models: Sequence[Model], head: Head, begin: Begin) -> Chunks:
    """The answer of the first model that begins one."""
    for place, model in enumerate(models):
        head.model, begun = model.name, False
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
