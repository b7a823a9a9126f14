"""The page of the reminders, scheduled questions and jobs, which people run, pause and cancel."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi import Query as Param

from harnesses.core.jobs import TaskAction, act, list_tasks
from harnesses.web.app_state import AppStateDep, require_token
from harnesses.web.auth.middleware import see_other
from harnesses.web.rendering.view import page, read_form
from harnesses.web.visitors import VisitorDep

router = APIRouter(include_in_schema=False, dependencies=[Depends(require_token)])


@router.get("/jobs")
async def show_jobs(
    request: Request,
    state: AppStateDep,
    visitor: VisitorDep,
    done: Annotated[TaskAction | None, Param()] = None,
) -> Response:
    """List the tasks that the viewer may see; `done` is what they have just done to one."""
    async with state.stores() as stores:
        tasks = await list_tasks(stores, visitor.owners, is_admin=visitor.viewer.has_full_access)
    return page(request, "jobs.html", tasks=tasks, done=done)


@router.post("/jobs")
async def change_job(request: Request, state: AppStateDep, visitor: VisitorDep) -> Response:
    """Do something to one of these tasks, and show the list again."""
    form = await read_form(request)
    async with state.stores() as stores:
        tasks = await list_tasks(stores, visitor.owners, is_admin=visitor.viewer.has_full_access)
        for task in tasks:
            if (task.store, task.name) == (form.get("store"), form.get("name")):
                for action in task.actions:
                    now = state.tendril.clock.now()
                    if action == form.get("action") and await act(stores, task, action, now):
                        return see_other(f"/jobs?done={action.replace(' ', '+')}")
    raise HTTPException(404, "It is gone, or has changed in the meantime: look at the list again.")
