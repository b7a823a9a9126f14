"""What every endpoint can ask for."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Header, Request

from agent_server.metering.metrics import Metrics
from agent_server.models.pool import Mind


async def _mind(request: Request) -> Mind:
    mind = request.app.state.mind
    assert isinstance(mind, Mind)
    return mind


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


TheMind = Annotated[Mind, Depends(_mind)]
TheMetrics = Annotated[Metrics, Depends(_metrics)]
Session = Annotated[str | None, Depends(_session)]
