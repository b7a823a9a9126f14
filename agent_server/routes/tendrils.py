"""GET /v1/tendrils and PUT /v1/tendrils/{name}: the live tendrils and their status reports."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field

from agent_server.errors import InvalidRequest
from agent_server.routes.dependencies import Context, Server
from agent_server.tendril_registry import MAX_TENDRILS, RegisteredTendril, TendrilReport

router = APIRouter()

Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="the tendril's name")]
ToolName = Annotated[str, Field(max_length=64)]
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Number = Annotated[float, Field(allow_inf_nan=False)]


class ReportBody(BaseModel):
    """A tendril's status report, sent every ten seconds."""

    state: str = Field(max_length=16, description='"ready", "waiting" or "starting"')
    tools: list[ToolName] = Field(default_factory=list, max_length=200)
    pending: int = Field(0, ge=0, description="questions being answered, or waiting for it")
    tokens_today: int = Field(0, ge=0, description="tokens used today (UTC)")
    counters: dict[MetricName, Number] = Field(default_factory=dict, max_length=50)
    gauges: dict[MetricName, Number] = Field(default_factory=dict, max_length=50)
    disk_trouble: bool = Field(False, description="it can write nothing at the moment")


class TendrilObject(ReportBody):
    """A live tendril; `key` is the name of the API key that it reports with."""

    name: str
    key: str
    seconds_ago: float = Field(description="since its last report")


class TendrilList(BaseModel):
    """The tendrils that have reported in the last half minute, sorted by name."""

    object: str = "list"
    data: list[TendrilObject]


@router.get("/v1/tendrils")
async def tendrils(server: Server) -> TendrilList:
    """List the live tendrils with their tools and their load."""
    return TendrilList(data=[_object(each) for each in await server.tendrils.present()])


@router.put("/v1/tendrils/{name}", status_code=204)
async def report(name: Name, body: ReportBody, server: Server, context: Context) -> Response:
    """Record the report of a tendril, which counts as live for half a minute from now on."""
    taken = TendrilReport(
        body.state,
        tuple(body.tools),
        body.pending,
        body.tokens_today,
        body.counters,
        body.gauges,
        body.disk_trouble,
    )
    if not await server.tendrils.record(name, context.key.name, taken):
        raise InvalidRequest(f"this key has reported {MAX_TENDRILS} tendrils already", param="name")
    return Response(status_code=204)


def _object(tendril: RegisteredTendril) -> TendrilObject:
    taken = tendril.report
    return TendrilObject(
        name=tendril.name,
        key=tendril.key,
        state=taken.state,
        tools=list(taken.tools),
        pending=taken.pending,
        tokens_today=taken.tokens_today,
        counters=dict(taken.counters),
        gauges=dict(taken.gauges),
        disk_trouble=taken.disk_trouble,
        seconds_ago=round(tendril.age, 1),
    )
