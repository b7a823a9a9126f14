"""The agent server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from agent_server.admission.admission import Admission, AdmissionPolicy, ReplicaFactory
from agent_server.auth.key_cache import ApiKeyCache
from agent_server.errors import ApiError
from agent_server.http.middleware import RequestMiddleware
from agent_server.http.responses import respond_with_error
from agent_server.metering.accounts import Metering
from agent_server.model_files.store import ModelPulls
from agent_server.models.pool import ModelPool
from agent_server.routes import chat, messages, models, monitoring, responses, texts
from agent_server.server_state import ServerState
from agent_server.settings.models import ModelSettings
from agent_server.settings.prices import UsageSettings
from agent_server.settings.server import ServerSettings, held_address
from storage.db.database import Database
from terrarium.config import Config

ROUTES = (chat, texts, responses, messages, models, monitoring)

DATABASE_PATIENCE = 1.0
"""Seconds to wait for another process that holds the lock of the server's database."""


def create_app(
    config: Config,
    policy: AdmissionPolicy | None = None,
    replicated: Mapping[str, ReplicaFactory] | None = None,
    *,
    stand_in: bool = False,
) -> FastAPI:
    """Build the agent server from `[server]`, `[model]` and `[usage]`. Raises ConfigError.

    Engines start and stop with the application's lifespan, except for those of the models in
    `replicated`. With `stand_in` the built-in model answers until the file of the default model is
    there.
    """
    server = config.section(ServerSettings)
    server.require_key()
    metering = Metering(config.section(UsageSettings), log_prompts=server.log_prompts)
    admission = Admission(metering, policy or AdmissionPolicy(), replicated or {})
    pool = ModelPool(config, admission.admitted_engine, metering, stand_in=stand_in)
    folder = config.section(ModelSettings).folder
    embedder = admission.embedding_engine(folder)
    api_keys = ApiKeyCache(server)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with held_address(config) as address:
            # Left in reverse order: the engines stop and report their last usage before the
            # recorder writes it, and the database closes last.
            async with (
                metering.tracing.exporting(),
                Database.open(address, patience=DATABASE_PATIENCE) as database,
                api_keys.refreshing(database),
                metering.recorder.writing_to(database),
                pool.lifespan(),
                embedder.lifespan(),
            ):
                await metering.accounts.restore(metering.recorder)
                yield

    most = server.max_body_bytes
    app = FastAPI(
        title="Terrarium agent server",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from a CDN
        redoc_url=None,
        middleware=[
            Middleware(RequestMiddleware, metering, api_keys, most),
            Middleware(RequestBodyLimitMiddleware, most),
        ],
    )
    app.state.server = ServerState(pool, embedder, metering, ModelPulls(folder))
    # Not by `include_router`, which makes all of these routes anew, while the first request waits.
    for routes in ROUTES:
        app.router.routes += routes.router.routes
    for kind in (ApiError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, respond_with_error)
    return app
