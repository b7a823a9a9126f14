"""The agent server as an ASGI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from agent_server import refusals
from agent_server.engines.base import Engine
from agent_server.engines.child import Spec
from agent_server.engines.embedded import EmbeddedEngine
from agent_server.engines.http import HttpEngine
from agent_server.metrics import Metrics
from agent_server.middleware import BearerKey, BodyLimit, RequestContext
from agent_server.mind import Mind
from agent_server.model_store import model_file
from agent_server.routes import chat, completions, health, models
from agent_server.settings import ModelSettings, ServerSettings
from storage.config import Config


def create_app(config: Config) -> FastAPI:
    """Build the server that `[server]` and `[model]` describe. Raises ConfigError.

    The engine starts and stops with the application's lifespan.
    """
    server, model = config.section(ServerSettings), config.section(ModelSettings)
    server.require_key()
    mind, metrics = Mind(engine_for(model), model), Metrics()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with mind.engine.running():
            yield

    app = FastAPI(title="Terrarium agent server", lifespan=lifespan)
    app.state.mind, app.state.metrics, app.state.started = mind, metrics, int(time.time())
    for noun in (chat, completions, models, health):
        app.include_router(noun.router)
    refusals.install(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, most=server.max_body_bytes)
    key = server.admin_key
    app.add_middleware(BearerKey, key=key.get_secret_value() if key else None)
    app.add_middleware(RequestContext, metrics=metrics)
    return app


def engine_for(settings: ModelSettings) -> Engine:
    """The engine that `settings` ask for, not yet running. Raises ConfigError."""
    if settings.upstream:
        key = settings.upstream_key
        return HttpEngine(
            settings.upstream,
            key=key.get_secret_value() if key else None,
            model=settings.upstream_model,
            timeout=settings.timeout,
        )
    spec = Spec(
        path=str(model_file(settings)),
        name=settings.name,
        context=settings.context,
        slots=settings.slots,
        threads=settings.threads,
        key="",
    )
    return EmbeddedEngine(spec, timeout=settings.timeout)
