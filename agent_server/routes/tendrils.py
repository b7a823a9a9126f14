"""GET /v1/tendrils and PUT /v1/tendrils/{name}: the live tendrils and their status reports."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel

from agent_server.errors import Forbidden, InvalidRequest
from agent_server.routes.dependencies import Context, Server
from agent_server.schemas.responses import ERRORS
from agent_server.tendril_registry import MAX_TENDRILS, TendrilObject, TendrilReport

router = APIRouter(responses=ERRORS)

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
