"""The agent server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from agent_server.admission.admission import Admission, AdmissionPolicy, ReplicaFactory
from agent_server.auth.key_cache import ApiKeyCache
from agent_server.database import held_address
from agent_server.http.middleware import AccessLogMiddleware, AuthMiddleware
from agent_server.metering.accounts import Metering
from agent_server.model_files.pulls import ModelPulls
from agent_server.models.pool import ModelPool
from agent_server.response_store import ResponseStore
from agent_server.routes import api
from agent_server.routes.dependencies import ServerState
from agent_server.settings.models import ModelSettings
from agent_server.settings.prices import UsageSettings
from agent_server.settings.server import ServerSettings
from agent_server.tendril_registry import TendrilRegistry
from storage.db.database import Database
from terrarium.config import Config

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
        # Authentication comes before the body: without a valid key no byte of it is read.
        middleware=[
            Middleware(AccessLogMiddleware, metering),
            Middleware(AuthMiddleware, api_keys, most),
            Middleware(RequestBodyLimitMiddleware, most),
        ],
    )
    responses, tendrils = ResponseStore(), TendrilRegistry()
    pulls = ModelPulls(folder)
    api.mount(app, ServerState(pool, embedder, metering, responses, tendrils, pulls))
    return app
