"""The page of a report: its claims, each with the lines that say it, as the viewer may read them.

The report of a channel is for whoever may read that channel. That of a private conversation has an
address that was told only there, and shows what who asked could read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, HTTPException
from fastapi import Path as PathParam
from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.app_state import AppState, AppStateDep, ViewerDep
from harnesses.web.auth.tokens import Viewer
from harnesses.web.rendering.view import page
from storage.chat_log.event import Event, Scope, is_private
from storage.log import Query
from storage.queues.reports import Report

router = APIRouter(include_in_schema=False)


@router.get("/research/{token}")
async def show_report(
    request: Request,
    state: AppStateDep,
    viewer: ViewerDep,
    token: Annotated[str, PathParam(max_length=64)],
) -> Response:
    """Show a report, also while it is being worked on."""
    report = await state.reports.get(token)
    scope = scope_for(viewer, report) if report else None
    if report is None or scope is None:
        raise HTTPException(404, "There is no such report, or you may not read it.")
    events = await shown_lines(state, scope, report)
    content = report.content.without(report.content.lines - events.keys())
    response = page(
        request,
        "report.html",
        report=report,
        content=content,
        events=events,
        hidden=len(report.content.claims) - len(content.claims),
    )
    response.headers["Cache-Control"] = "no-store"
    return response


def scope_for(viewer: Viewer, report: Report) -> Scope | None:
    """Return the part of the log that a viewer of a report may see in it, None if they may not see
    the report."""
    if is_private(report.place.channel):
        return report.scope if viewer.is_authenticated else None
    return viewer.scope if viewer.scope.covers(report.place) else None


async def shown_lines(state: AppState, scope: Scope, report: Report) -> Mapping[int, Event]:
    """Return the lines of a report by id, without those outside a scope and those of people who
    have opted out since."""
    ids = report.content.lines
    if not ids:
        return {}
    found = await state.log.find(Query(scope=scope, ids=ids, limit=len(ids)))
    return {event.id: event for event in await state.log.shown_to_model(found)}
