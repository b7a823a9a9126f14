"""What every endpoint can ask for."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Header, Request

from agent_server.metering.metrics import Metrics
from agent_server.models.pool import ModelPool


async def _model_pool(request: Request) -> ModelPool:
    pool = request.app.state.pool
    assert isinstance(pool, ModelPool)
    return pool


async def _metrics(request: Request) -> Metrics:
    metrics = request.app.state.metrics
    assert isinstance(metrics, Metrics)
    return metrics


async def _session(
    x_session_id: Annotated[
        str | None, Header(max_length=256, description="the conversation this request belongs to")
    ] = None,
    x_priority: Annotated[
        Literal["interactive", "background"], Header(description="who waits for the answer")
    ] = "interactive",
) -> str | None:
    """The priority is only checked here: admission has read it with the key."""
    return x_session_id


ModelPoolDep = Annotated[ModelPool, Depends(_model_pool)]
MetricsDep = Annotated[Metrics, Depends(_metrics)]
Session = Annotated[str | None, Depends(_session)]
