"""GET /health, /ready and /metrics: for supervisors and monitoring."""

from __future__ import annotations

import asyncio

import structlog
from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from agent_server.errors import EngineMisconfigured, EngineUnavailable
from agent_server.routes.dependencies import ModelPoolDep, Server
from agent_server.tendril_registry import TendrilCollector

router = APIRouter()

log = structlog.get_logger()

TENDRILS_TIMEOUT = 2.0
"""Seconds after which `/metrics` answers without the tendrils: a scrape has to be quick."""


@router.get("/health")
async def health() -> dict[str, str]:
    """Report that the process is alive."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(pool: ModelPoolDep) -> dict[str, str]:
    """Report whether the default model can generate now; 503 if it cannot."""
    if not await pool.ready():
        if pool.trouble:
            raise EngineMisconfigured(pool.trouble)
        raise EngineUnavailable("the model is not there yet")
    return {"status": "ready"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(server: Server) -> Response:
    """Return the metrics in Prometheus's text format.

    Those of the tendrils are left out while their registry cannot be reached.
    """
    exposition = server.metering.metrics.exposition()
    try:
        async with asyncio.timeout(TENDRILS_TIMEOUT):
            exposition += generate_latest(TendrilCollector(await server.tendrils.present()))
    except (TimeoutError, EngineUnavailable):
        log.warning("metrics.without_tendrils")
    return Response(exposition, media_type=CONTENT_TYPE_LATEST)
