"""The pages of the runs: the traces of all turns of all tendrils, with their costs.

The list is for who may read everything. The page of a run, and its words, are also for whoever may
read the question in the log.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import Response

from harnesses.core.services.shared_log import room_name
from harnesses.web.app_state import AppState, AppStateDep, ViewerDep, require_full, require_token
from harnesses.web.auth.tokens import Viewer
from harnesses.web.rendering.run_details import RunDetails
from harnesses.web.rendering.view import page
from storage.chat_log.event import Event, Place
from storage.chat_log.opt_outs import name_of
from storage.runs import reader as run_reader
from storage.runs.reader import RunRecord

_PAGE_SIZE = 50
_JSON = ".json"
router = APIRouter(include_in_schema=False)


@router.get("/runs", dependencies=[Depends(require_full)])
async def show_runs(
    request: Request,
    state: AppStateDep,
    before: Annotated[int | None, Param(ge=0, le=2**53)] = None,
) -> Response:
    """List the newest runs, or those `before` a time in microseconds since 1970."""
    until = datetime.fromtimestamp(before / 1_000_000, UTC) if before is not None else None
    runs = await run_reader.newest_runs(state.runs, _PAGE_SIZE + 1, until)
    shown, more = runs[:_PAGE_SIZE], len(runs) > _PAGE_SIZE
    older = round(shown[-1].started.timestamp() * 1_000_000) if more else None
    return page(request, "runs.html", runs=shown, older=older)


@router.get("/runs/{name}", dependencies=[Depends(require_token)])
async def show_run(request: Request, state: AppStateDep, viewer: ViewerDep, name: str) -> Response:
    """Show a run with its steps; as JSON if the name ends with `.json`, or if that is accepted."""
    run = await run_reader.read_run(state.runs, name.removesuffix(_JSON))
    question = await state.log.get(viewer.scope, run.question_event_id) if run else None
    has_question = run is not None and question is not None and _answers(run, question)
    if not viewer.has_full_access and not has_question:
        raise HTTPException(401)
    if run is None:
        raise HTTPException(404, "There is no such run; old ones are removed after some days.")
    # The instructions of a job are the operator's, and it reads public channels only.
    has_words = has_question or run.profile == "job"
    turn = await run_reader.read_turn(state.runs, run) if has_words else ()
    details = RunDetails.from_run(run, turn)
    if name.endswith(_JSON) or "application/json" in request.headers.get("accept", ""):
        return Response(details.model_dump_json(), media_type="application/json")
    return page(request, "run.html", run=run, details=details, question=question)


async def run_behind(state: AppState, viewer: Viewer, event: Event) -> RunRecord | None:
    """Return the newest run in which a line of the bot was written, or which a line of somebody
    else began; None if there is none, or if the viewer may not read runs."""
    asked = event.reply_to
    question = event if asked is None else await state.log.get(viewer.scope, asked)
    if not viewer.is_authenticated or question is None:
        return None
    runs = await run_reader.runs_for_event(state.runs, question.id)
    return next((run for run in runs if _answers(run, question)), None)


def _answers(run: RunRecord, question: Event) -> bool:
    """Return whether a run answers this event of the log, and not just has its number."""
    # Folded as IRC folds names. A conversation is that of a room, or of a person there (ROOM/NICK).
    room = room_name(Place(question.network, question.channel))
    _, conversation = name_of("", f"{run.conversation}/")
    return not run.private and conversation.startswith(name_of("", f"{room}/")[1])
