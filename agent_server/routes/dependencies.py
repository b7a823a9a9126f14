"""Dependencies of endpoints."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from agent_server.admission.admitted_engine import AdmittedEngine
from agent_server.metering.accounts import Metering
from agent_server.metering.request_context import RequestContext, request_context
from agent_server.models.pool import ModelPool
from agent_server.response_store import ResponseStore
from agent_server.tendril_registry import TendrilRegistry


@dataclass(frozen=True, slots=True)
class ServerState:
    """The parts of a running server that its endpoints use.

    `currency` is that of the prices, `tendrils` has the reports of live tendrils; `started` is a
    Unix timestamp.
    """

    pool: ModelPool
    embedder: AdmittedEngine
    metering: Metering
    currency: str
    responses: ResponseStore
    tendrils: TendrilRegistry
    started: int = field(default_factory=lambda: int(time.time()))


async def _server_state(request: Request) -> ServerState:
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state


async def _model_pool(request: Request) -> ModelPool:
    return (await _server_state(request)).pool


async def _context(request: Request) -> RequestContext:
    return request_context(request.scope)


Server = Annotated[ServerState, Depends(_server_state)]
ModelPoolDep = Annotated[ModelPool, Depends(_model_pool)]
Context = Annotated[RequestContext, Depends(_context)]
