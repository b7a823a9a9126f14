"""The pages of the runs: the traces of all turns of all tendrils, with their costs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.app_state import AppStateDep, require_full
from harnesses.web.rendering.view import page
from storage.runs import reader as run_reader

_PAGE_SIZE = 50
router = APIRouter(include_in_schema=False, dependencies=[Depends(require_full)])


@router.get("/runs")
async def show_runs(
    request: Request,
    state: AppStateDep,
    before: Annotated[int | None, Param(ge=0, le=2**53)] = None,
) -> Response:
    """List the newest runs, or those `before` a time in microseconds since 1970."""
    until = datetime.fromtimestamp(before / 1_000_000, UTC) if before is not None else None
    runs = await run_reader.newest_runs(state.runs, _PAGE_SIZE + 1, until)
    older = (
        round(runs[_PAGE_SIZE - 1].started.timestamp() * 1_000_000)
        if len(runs) > _PAGE_SIZE
        else None
    )
    return page(request, "runs.html", runs=runs[:_PAGE_SIZE], older=older)


@router.get("/runs/{name}")
async def show_run(request: Request, state: AppStateDep, name: str) -> Response:
    """Show a run with its steps."""
    run = await run_reader.read_run(state.runs, name)
    if run is None:
        raise HTTPException(404, "There is no such run; old ones are removed after some days.")
    return page(request, "run.html", run=run)
