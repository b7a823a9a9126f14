"""GET /health, /ready, /metrics and /usage, and the tendrils' reports at /v1/tendrils."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from agent_server.errors import EngineUnavailable, Forbidden, InvalidRequest
from agent_server.routes.dependencies import Context, Server
from agent_server.schemas.openapi import ERRORS
from agent_server.server_state import (
    MAX_TENDRILS,
    TendrilCollector,
    TendrilObject,
    TendrilReport,
)
from storage.db.errors import Unavailable
from storage.usage.usage import UsageAmount

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


DEFAULT_DAYS = 30
"""Number of days in the answer by default."""


class UsageTotals(BaseModel):
    """Requests, tokens and their cost; `cached_tokens` are included in `prompt_tokens`."""

    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: float = Field(description="in `currency`, by the price table of [usage]")


class UsageRow(UsageTotals):
    """The usage of one model by one tendril on one day."""

    day: date
    tendril: str
    model: str


class UsageAnswer(BaseModel):
    """The usage from `since` to `until`, both included; days are UTC days."""

    since: date
    until: date
    currency: str
    total: UsageTotals
    data: list[UsageRow]


Day = Annotated[date | None, Query(description="a UTC day, YYYY-MM-DD")]


@router.get("/usage")
async def usage(
    server: Server, context: Context, since: Day = None, until: Day = None
) -> UsageAnswer:
    """Report the usage of the requesting key; of all keys to the operator's own keys and on an open
    server."""
    until = until or datetime.now(UTC).date()
    since = since or date.fromordinal(max(1, until.toordinal() - DEFAULT_DAYS + 1))
    if since > until:
        raise InvalidRequest("since is after until", param="since")
    owner = None if context.sees_all else context.key.name
    try:
        found = await server.metering.recorder.read(since, until, owner)
    except Unavailable as error:
        raise EngineUnavailable("the usage cannot be read now") from error
    return UsageAnswer(
        since=since,
        until=until,
        currency=server.metering.recorder.settings.currency,
        total=UsageTotals(**_amount(sum(found.values(), UsageAmount()))),
        data=[
            UsageRow(day=key.day, tendril=key.tendril, model=key.model, **_amount(amount))
            for key, amount in found.items()
        ],
    )


def _amount(amount: UsageAmount) -> Mapping[str, float]:
    return {
        "requests": amount.requests,
        "prompt_tokens": amount.prompt,
        "cached_tokens": amount.cached,
        "completion_tokens": amount.completion,
        "cost": round(amount.cost, 6),
    }


Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="the tendril's name")]


class TendrilList(BaseModel):
    """The tendrils that have reported in the last half minute, sorted by name."""

    object: str = "list"
    data: list[TendrilObject]


@router.get("/v1/tendrils")
async def tendrils(server: Server, context: Context) -> TendrilList:
    """List the live tendrils with their tools and their load; of an issued key its own only."""
    present = server.tendrils.present()
    own = (each for each in present if context.sees_all or each.key == context.key.name)
    return TendrilList(data=[*own])


@router.put("/v1/tendrils/{name}", status_code=204)
async def report(name: Name, body: TendrilReport, server: Server, context: Context) -> Response:
    """Record the report of a tendril, which counts as live for half a minute from now on."""
    if not context.sees_all and name != context.key.name:
        raise Forbidden(f"this key reports the tendril {context.key.name} only", param="name")
    if not server.tendrils.record(name, context.key.name, body):
        raise InvalidRequest(f"this key has reported {MAX_TENDRILS} tendrils already", param="name")
    return Response(status_code=204)
