"""GET /health, /ready and /metrics: for supervisors and monitoring."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from agent_server.routes.dependencies import Server
from agent_server.schemas.responses import ERRORS
from agent_server.tendril_registry import TendrilCollector

router = APIRouter(responses=ERRORS)


@router.get("/health")
async def health() -> dict[str, str]:
    """Report that the process is alive."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(server: Server) -> dict[str, str]:
    """Report whether the default model can generate now; 503 if it cannot.

    The server answers without its database too, and counts the usage later.
    """
    await server.pool.require_ready()
    away = server.metering.recorder.is_database_away
    return {"status": "ready", "database": "away" if away else "ok"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(server: Server) -> Response:
    """Return the metrics in Prometheus's text format."""
    exposition = server.metering.metrics.exposition()
    exposition += generate_latest(TendrilCollector(server.tendrils.present()))
    return Response(exposition, media_type=CONTENT_TYPE_LATEST)
