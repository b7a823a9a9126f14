"""The agent server as an ASGI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from agent_server.admission.admission import Admission
from agent_server.admission.admitted_engine import Metering
from agent_server.auth.key_cache import ApiKeyCache
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.embeddings import EmbeddingEngine
from agent_server.http import exception_handlers
from agent_server.http.middleware import (
    AccessLogMiddleware,
    AgentServer,
    AuthMiddleware,
    BodySizeLimitMiddleware,
)
from agent_server.metering.key_usage import Quotas, UsageRecorder
from agent_server.metering.metrics import Metrics
from agent_server.models.pool import ModelPool, ModelTable
from agent_server.models.watcher import follow
from agent_server.routes import chat, completions, embeddings, health, models
from agent_server.routes import usage as usage_route
from agent_server.routes.anthropic_api import routes as anthropic_routes
from agent_server.routes.fast_route import FastPathMiddleware
from agent_server.routes.responses_api import routes as responses_routes
from agent_server.routes.responses_api.store import ResponseStore
from agent_server.schemas.responses import ErrorBody, errors
from agent_server.settings.admission import AdmissionSettings
from agent_server.settings.prices import UsageSettings
from agent_server.settings.server import ServerSettings
from storage.db.database import Database
from storage.usage.api_keys import server_path
from storage.usage.usage import UsageTable
from terrarium.config import Config

EMBEDDING_SLOTS = 4
"""Requests that take turns with the embedding model, batch by batch."""

PATIENCE = 1.0
"""Seconds to wait for another process that writes to the server's file."""


def create_app(config: Config) -> AgentServer:
    """Build the server that `[server]` and `[model]` describe. Raises ConfigError.

    The engine starts and stops with the application's lifespan.
    """
    server = config.section(ServerSettings)
    server.require_key()
    usage = config.section(UsageSettings)
    metrics, recorder = Metrics(), UsageRecorder(usage.prices)
    metering = Metering(Quotas(), recorder, metrics, server.log_prompts)
    admission = Admission(config.section(AdmissionSettings), metering)
    pool = ModelPool(ModelTable.from_config(config, admission.admitted_engine))
    embedder = admission.wrap(EmbeddingEngine(), EMBEDDER, EMBEDDING_SLOTS)
    api_keys = ApiKeyCache(server.admin_key.get_secret_value() if server.admin_key else None)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with (
            Database.open(server_path(config.data), patience=PATIENCE) as database,
            api_keys.refreshing(database),
            recorder.writing_to(UsageTable(database)),
            pool.lifespan(),
            embedder.lifespan(),
            follow(pool, config, admission.admitted_engine),
        ):
            await admission.restore()
            yield

    app = AgentServer(title="Terrarium agent server", lifespan=lifespan)
    app.state.pool, app.state.metrics, app.state.started = pool, metrics, int(time.time())
    app.state.ledger, app.state.currency = recorder, usage.currency
    app.state.responses, app.state.embedder = ResponseStore(), embedder
    for routes in (
        chat, completions, responses_routes, embeddings, anthropic_routes, models, usage_route,
        health,
    ):  # fmt: skip
        app.include_router(routes.router, responses=errors(ErrorBody))
    exception_handlers.register(app)
    shortcut = FastPathMiddleware(app.framework, pool, (chat.router, completions.router))
    limited = BodySizeLimitMiddleware(shortcut, server.max_body_bytes)
    app.front = AccessLogMiddleware(AuthMiddleware(limited, api_keys), metrics)
    return app
