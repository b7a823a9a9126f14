"""GET /usage: the usage of each tendril."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from agent_server.errors import EngineUnavailable, InvalidRequest
from agent_server.routes.dependencies import Context, Server
from agent_server.schemas.responses import ERRORS
from storage.db.errors import Unavailable
from storage.usage.usage import UsageAmount

router = APIRouter(responses=ERRORS)

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
