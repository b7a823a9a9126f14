"""The first page, with the channels and how it all is, and the pages of long answers."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response

from harnesses.core.addresses import with_query
from harnesses.core.launcher.plan import IrcEndpoint
from harnesses.core.tendril.status import read_reports
from harnesses.web.app_state import AppState, AppStateDep, ViewerDep
from harnesses.web.queries import first, in_place
from harnesses.web.rendering.charts import spark
from harnesses.web.rendering.text import answer_html, plain_lines
from harnesses.web.rendering.view import page
from storage.chat_log import statistics
from storage.chat_log.event import SPOKEN, Event
from storage.queues.reminders import Reminders
from storage.runs.reader import newest_runs

SPARK_DAYS = 30
SPARK = (96, 24)  # width and height, as the template has them
_TEXT = ".txt"
_MAX_QUESTIONS, _MAX_REMINDERS = 6, 5
_MODEL_TIMEOUT = 0.3  # seconds
router = APIRouter(include_in_schema=False)


@router.get("/")
async def show_home(request: Request, state: AppStateDep, viewer: ViewerDep) -> Response:
    """Show the channels, the most recently active first, with the newest line of each, and the
    last questions; whoever may read everything also sees how it all is."""
    scope = viewer.scope
    counts = await state.log.read(statistics.sparklines, scope, datetime.now(UTC), SPARK_DAYS)
    channels = []
    for each in await state.log.read(statistics.channels, scope):
        newest = await first(state.log, replace(in_place(scope, each.place), types=SPOKEN))
        lines = counts.get(each.place, ())
        channels.append((each, newest, spark(lines, *SPARK), lines[-1] if lines else 0))
    questions: list[Event] = []
    for run in await newest_runs(state.runs, 4 * _MAX_QUESTIONS):
        question = await state.log.get(scope, run.question_event_id)
        if question and not run.private and question.id not in {each.id for each in questions}:
            questions.append(question)
    return page(
        request,
        "home.html",
        channels=channels,
        questions=questions[:_MAX_QUESTIONS],
        operation=await _operation(state) if viewer.has_full_access else None,
    )


async def _operation(state: AppState) -> dict[str, Any]:
    """Return what the first page tells the operator."""
    card = None
    try:
        async with asyncio.timeout(_MODEL_TIMEOUT):
            card = await state.tendril.resources.catalog.card()
    except TimeoutError:  # the page does not wait for it
        pass
    # Those of the IRC tendril, which keeps them in the database of the log.
    reminders = await Reminders(state.log.database).all()

    def disk(folder: Path) -> tuple[int, int]:
        size = 0
        for each in folder.glob("**/*"):
            with suppress(FileNotFoundError):  # a temporary file
                size += each.stat().st_size if each.is_file() else 0
        return size, shutil.disk_usage(folder).free

    return {
        "card": card,
        "endpoint": IrcEndpoint.from_config(state.tendril.config),
        "reminders": [each for each in reminders if not each.private][:_MAX_REMINDERS],
        "tendrils": [each for each in read_reports(state.data) if each.state != "stopped"],
        "disk": await asyncio.to_thread(disk, state.data),
    }


@router.get("/api")
async def show_api(request: Request, state: AppStateDep) -> Response:
    """Describe the endpoints of the API, each with an example."""
    site, operations = state.site_url(request), []
    for path, methods in request.app.openapi()["paths"].items():
        for method, operation in methods.items():
            taken = operation.get("parameters", [])
            examples = {
                each["name"]: each["schema"]["examples"][0]
                for each in taken
                if "examples" in each["schema"] and (each["required"] or each["name"] == "channel")
            }
            address = with_query(site + path.replace("{id}", "1042"), **examples)
            body = " --data-binary 'the tea is ready'" if method == "post" else ""
            operations.append((method.upper(), path, operation, f"curl{body} '{address}'"))
    return page(request, "api.html", operations=operations, site=site)


@router.get("/paste/{token}")
async def show_paste(request: Request, state: AppStateDep, token: str) -> Response:
    """Show a long answer of the IRC tendril in full, until it expires: as a page, or, with `.txt`
    after the token, as the text that the model wrote.

    People of the channel open it, who have no token of this site: the unguessable address is the
    permission, so `SecurityMiddleware` asks for no token. No page lists the addresses.
    """
    paste = await state.pastes.get(token.removesuffix(_TEXT))
    if paste and token.endswith(_TEXT):
        response = Response(plain_lines(paste.text), media_type="text/plain; charset=utf-8")
    else:
        html = answer_html(paste.text) if paste else None
        status = 200 if paste else 404
        response = page(request, "paste.html", status=status, paste=paste, html=html)
    response.headers["Cache-Control"] = "no-store"
    return response
