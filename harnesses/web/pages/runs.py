"""The pages of how answers came about: the runs, which are the traces of all turns of all tendrils
with their costs, and the reports of research, with the lines that say each claim.

The list of runs is for who may read everything. The page of a run, and its words, are also for
whoever may read the question in the log. The report of a channel is for whoever may read that
channel. That of a private conversation has an address that was told only there, and shows what who
asked could read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, HTTPException, Path, Request, Response
from fastapi import Query as Param
from pydantic import BaseModel, ConfigDict, Field

from harnesses.core.services.shared_log import room_name
from harnesses.web.app_state import AppState, AppStateDep, ViewerDep, require_full, require_token
from harnesses.web.auth.tokens import Viewer
from harnesses.web.rendering.view import page
from storage.chat_log.event import Event, Place, Scope, is_private, without_host
from storage.chat_log.opt_outs import name_of
from storage.memory.conversations import Message
from storage.queues.reports import Report
from storage.runs import reader as run_reader
from storage.runs.reader import RunRecord
from storage.runs.runs import Step

_PAGE_SIZE = 50
_MAX_WORDS = 20_000  # characters of one text
_JSON = ".json"
_WITHOUT_MODEL = ("reading", "retrieval", "answerer")
router = APIRouter(include_in_schema=False)


class PromptPart(BaseModel):
    """A part of a prompt, in the order in which the model reads them."""

    name: str
    tokens: int = Field(description="estimated; all parts together are the tokens of the prompt")
    cached: int = Field(description="how many of them the engine had in its cache")
    lines: int


class RunStep(BaseModel):
    """A step of a run. Its `kind` is reading (of the question), retrieval, answerer (without the
    model), model, tool or delivery; the words are "" where they are not kept or not for this
    reader."""

    model_config = ConfigDict(from_attributes=True)

    kind: str
    name: str
    ok: bool
    began_ms: int = Field(validation_alias="began", description="from the start of the run")
    ms: int
    verdict: str = Field(
        description="of the guard rails on a tool call; the certainty, 0 to 1, where no model wrote"
    )
    prompt_tokens: int = Field(validation_alias="prompt")
    cached_tokens: int = Field(validation_alias="cached")
    completion_tokens: int = Field(validation_alias="completion")
    finish_reason: str
    filters: tuple[str, ...] = Field(description="which have changed the text of the reply")
    prompt: list[PromptPart] = Field([], validation_alias="prompt_parts")
    thought: str = ""
    text: str = ""
    arguments: str = ""
    result: str = ""

    @property
    def certainty(self) -> float | None:
        """The certainty of what was found without the model, 0 to 1; None of other steps."""
        found = self.verdict.partition(" ")[0]
        return float(found) if found and self.kind in _WITHOUT_MODEL else None


class RunDetails(BaseModel):
    """A run with its steps. `line` is the id of the question in the log."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    tendril: str
    conversation: str | None = Field(description="null of a private one")
    trigger: str = Field(validation_alias="profile")
    model: str
    profile: str = Field(
        validation_alias="model_profile", description="of the model: tiny, small or capable"
    )
    started: datetime
    ended: datetime | None
    outcome: str
    reason: str
    cut: bool
    forced: bool
    model_calls: int = Field(validation_alias="iterations")
    prompt_tokens: int = Field(validation_alias="prompt")
    cached_tokens: int = Field(validation_alias="cached")
    completion_tokens: int = Field(validation_alias="completion")
    line: int | None = Field(validation_alias="question_event_id")
    question: str = ""
    answer: str = ""
    steps: list[RunStep]

    @classmethod
    def from_run(cls, run: RunRecord, turn: Sequence[Message]) -> Self:
        """Combine a run with the messages of its turn; without messages it has no words."""
        details = cls.model_validate(run)
        details.conversation = None if run.private else without_host(run.conversation)
        details.line = run.question_event_id or None
        details.question, details.answer = (_text(turn[0]), _text(turn[-1])) if turn else ("", "")
        for shown, step, words in zip(
            details.steps, run.steps, _words(run.steps, turn), strict=True
        ):
            cached = step.cached  # the cache holds the first tokens of a prompt
            for part in step.parts:
                held = min(part.tokens, cached)
                cached -= held
                shown.prompt.append(
                    PromptPart(name=part.name, tokens=part.tokens, cached=held, lines=part.lines)
                )
            for name, text in words.items():
                setattr(shown, name, text)
        return details

    @property
    def total_ms(self) -> int:
        """The duration of the run, up to the end of the last step, at least 1."""
        took = (self.ended - self.started) // timedelta(milliseconds=1) if self.ended else 1
        return max(1, took, *(step.began_ms + step.ms for step in self.steps))


def _words(steps: Sequence[Step], turn: Sequence[Message]) -> Iterator[dict[str, str]]:
    """Yield the words of each step.

    A model call that is followed by tool calls is the next reply with calls in the turn, and the
    last one the answer. Other model calls, such as one with an empty reply, left no message.
    """
    replies = (place for place, message in enumerate(turn) if message.get("tool_calls"))
    calls: dict[str, str] = {}
    results: dict[str, str] = {}
    for number, step in enumerate(steps):
        if step.kind != "model":
            words = {"arguments": calls, "result": results}
            yield {name: found.get(step.call_id, "") for name, found in words.items()}
            continue
        later = (each.kind for each in steps[number + 1 :] if each.kind in ("model", "tool"))
        following, reply = next(later, ""), Message()
        if following == "tool" and (place := next(replies, None)) is not None:
            reply = turn[place]
            calls = {
                call["id"]: _shorten(call["function"]["arguments"]) for call in reply["tool_calls"]
            }
            # Up to the next reply.
            said = takewhile(lambda each: each["role"] != "assistant", turn[place + 1 :])
            results = {each["tool_call_id"]: _text(each) for each in said if each["role"] == "tool"}
        elif not following and turn:
            reply = turn[-1]
        yield {"thought": _shorten(reply.get("reasoning_content", "")), "text": _text(reply)}


def _text(message: Message) -> str:
    content: Any = message.get("content") or ""
    return _shorten(content if isinstance(content, str) else json.dumps(content))


def _shorten(text: str) -> str:
    more = len(text) - _MAX_WORDS
    return text if more <= 0 else f"{text[:_MAX_WORDS]}\n({more:,} more characters)"


@router.get("/runs", dependencies=[Depends(require_full)])
async def show_runs(
    request: Request,
    state: AppStateDep,
    viewer: ViewerDep,
    before: Annotated[int | None, Param(ge=0, le=2**53)] = None,
) -> Response:
    """List the newest runs, or those `before` a time in microseconds since 1970."""
    until = datetime.fromtimestamp(before / 1_000_000, UTC) if before is not None else None
    runs = await run_reader.newest_runs(state.runs, _PAGE_SIZE + 1, until)
    shown, more = runs[:_PAGE_SIZE], len(runs) > _PAGE_SIZE
    older = round(shown[-1].started.timestamp() * 1_000_000) if more else None
    lines = await state.lines(viewer.scope, {each.question_event_id for each in shown})
    turns = await run_reader.read_turns(state.runs, shown)
    rows = []
    for run in shown:
        line = lines.get(run.question_event_id)
        question = line if line and _answers(run, line) else None
        # As on the page of a run.
        turn = turns.get(run.id, ()) if question or run.profile == "job" else ()
        words = (_text(turn[0]), _text(turn[-1])) if turn else None
        rows.append((run, question, words))
    return page(request, "runs.html", rows=rows, older=older)


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
    turns = await run_reader.read_turns(state.runs, [run]) if has_words else {}
    turn = turns.get(run.id, ())
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
    # Folded as IRC folds names. A conversation is that of a room, or of a person there (ROOM/NICK)
    # or in a thread there (ROOM%:THREAD/NICK).
    _, room = name_of("", room_name(Place(question.network, question.channel)))
    _, conversation = name_of("", f"{run.conversation}/")
    return not run.private and conversation.startswith((f"{room}/", f"{room}%:"))


@router.get("/research/{token}")
async def show_report(
    request: Request,
    state: AppStateDep,
    viewer: ViewerDep,
    token: Annotated[str, Path(max_length=64)],
) -> Response:
    """Show a report, also while it is being worked on."""
    report = await state.reports.get(token)
    scope = scope_for(viewer, report) if report else None
    if report is None or scope is None:
        raise HTTPException(404, "There is no such report, or you may not read it.")
    lines = await state.lines(scope, report.content.lines)
    # Without those of people who have opted out since.
    events = {each.id: each for each in await state.log.shown_to_model([*lines.values()])}
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
