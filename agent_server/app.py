"""The agent server as an ASGI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_server import refusals
from agent_server.admission.admission import Admission
from agent_server.admission.engine import Books
from agent_server.admission.quota import Quotas
from agent_server.admission.settings import AdmissionSettings
from agent_server.embeddings.engine import NAME as EMBEDDER
from agent_server.embeddings.engine import E5Engine
from agent_server.key_ring import KeyRing
from agent_server.ledger import Ledger
from agent_server.metrics import Metrics
from agent_server.middleware import BearerKey, BodyLimit, RequestContext
from agent_server.mind import Mind
from agent_server.prices import UsageSettings
from agent_server.reload import follow
from agent_server.responses.store import ResponseStore
from agent_server.routes import chat, completions, embeddings, health, messages, models, responses
from agent_server.routes import usage as usage_route
from agent_server.routing import Routes
from agent_server.settings import ServerSettings
from agent_server.shapes import ErrorBody, errors
from agent_server.shortcut import Shortcut
from storage.config import Config
from storage.database import Database
from storage.keys import server_path
from storage.usage import UsageTable

EMBEDDING_PLACES = 4
"""Requests that take turns with the embedding model, batch by batch."""

PATIENCE = 1.0
"""Seconds to wait for another process that writes to the server's file."""


class AgentServer(FastAPI):
    """The application behind a front of ours, whose layers are passed before the framework's.

    What the front answers by itself never enters the framework, which would cost more than the
    answer does.
    """

    front: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "http":
            await self.front(scope, receive, send)
        else:
            await self.framework(scope, receive, send)

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one that the front leaves to the framework."""
        await super().__call__(scope, receive, send)


def create_app(config: Config) -> AgentServer:
    """Build the server that `[server]` and `[model]` describe. Raises ConfigError.

    The engine starts and stops with the application's lifespan.
    """
    server = config.section(ServerSettings)
    server.require_key()
    usage = config.section(UsageSettings)
    metrics, ledger = Metrics(), Ledger(usage.prices)
    books = Books(Quotas(), ledger, metrics, server.log_prompts)
    admission = Admission(config.section(AdmissionSettings), books)
    mind = Mind(Routes.of(config, admission.guarded))
    embedder = admission.guard(E5Engine(), EMBEDDER, EMBEDDING_PLACES)
    ring = KeyRing(server.admin_key.get_secret_value() if server.admin_key else None)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with (
            Database.opened(server_path(config.data), patience=PATIENCE) as database,
            ring.kept_up(database),
            ledger.kept_in(UsageTable(database)),
            mind.running(),
            embedder.running(),
            follow(mind, config, admission.guarded),
        ):
            await admission.restore()
            yield

    app = AgentServer(title="Terrarium agent server", lifespan=lifespan)
    app.state.mind, app.state.metrics, app.state.started = mind, metrics, int(time.time())
    app.state.ledger, app.state.currency = ledger, usage.currency
    app.state.responses, app.state.embedder = ResponseStore(), embedder
    for noun in (chat, completions, responses, embeddings, messages, models, usage_route, health):
        app.include_router(noun.router, responses=errors(ErrorBody))
    refusals.install(app)
    shortcut = Shortcut(app.framework, mind, (chat.router, completions.router))
    limited = BodyLimit(shortcut, server.max_body_bytes)
    app.front = RequestContext(BearerKey(limited, ring), metrics)
    return app
