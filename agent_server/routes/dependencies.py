"""Dependencies of endpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from agent_server.metering.metrics import Metrics
from agent_server.metering.request_context import RequestContext, request_context
from agent_server.models.pool import ModelPool


async def _model_pool(request: Request) -> ModelPool:
    pool = request.app.state.pool
    assert isinstance(pool, ModelPool)
    return pool


async def _metrics(request: Request) -> Metrics:
    metrics = request.app.state.metrics
    assert isinstance(metrics, Metrics)
    return metrics


async def _context(request: Request) -> RequestContext:
    return request_context(request.scope)


ModelPoolDep = Annotated[ModelPool, Depends(_model_pool)]
MetricsDep = Annotated[Metrics, Depends(_metrics)]
Context = Annotated[RequestContext, Depends(_context)]
