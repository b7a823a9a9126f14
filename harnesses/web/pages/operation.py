"""The pages for operators: the tendrils, the models and their usage, the settings, and what
tendrils have felt, unasked, with whether it was worth speaking."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Annotated, Literal

import structlog
from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response

from harnesses.core.addresses import with_query
from harnesses.core.attention import change, pressure
from harnesses.core.effective import config_entries
from harnesses.core.tendril.status import read_reports
from harnesses.web.app_state import AppStateDep, ScopeDep, require_full
from harnesses.web.auth.middleware import see_other
from harnesses.web.rendering.charts import BarChart, spark
from harnesses.web.rendering.view import page, read_form
from llm.client.catalogue import FetchableModel, FetchableModels, UsageReport, change_model
from llm.messages.errors import ModelError
from storage.chat_log.event import is_private
from storage.chat_log.statistics import DayStats
from storage.queues.unasked import LIFETIME, Signal, Signals
from storage.runs import reader
from storage.usage.usage import UsageAmount

USAGE_DAYS = 30
_USAGE_TABLES = ("Tendril", "Purpose", "Channel and person")
_MAX_PEOPLE = 20
_CHARTED, _POINTS = timedelta(days=1), 144
_LISTED = 50
_NEVER_FELT = ("answered", "in the pause")
_SPARK = (288, 48)  # width and height
_log = structlog.get_logger()
router = APIRouter(include_in_schema=False, dependencies=[Depends(require_full)])


@router.get("/tendrils")
async def show_tendrils(request: Request, state: AppStateDep) -> Response:
    """List the tendrils with their state."""
    card = await state.tendril.resources.catalog.card()
    return page(request, "tendrils.html", tendrils=read_reports(state.data), card=card)


@router.get("/usage")
async def show_usage(request: Request, state: AppStateDep) -> Response:
    """Show the tokens of the last 30 days by tendril, purpose and person, and, where models have
    prices, the costs."""
    today = datetime.now(UTC).date()
    begin = today - timedelta(days=USAGE_DAYS - 1)
    spent = await reader.spending(state.runs, begin)
    tables = {title: defaultdict[str, UsageAmount](UsageAmount) for title in _USAGE_TABLES}
    by_day = Counter[date]()
    for tendril, spend, amount in spent:
        # A conversation on a channel is that of a person there (NETWORK/CHANNEL/NICK).
        is_public = not is_private(spend.room.partition("/")[2])
        person = spend.conversation if is_public and spend.conversation else ""
        for table, key in zip(tables.values(), (tendril, spend.purpose, person), strict=True):
            table[key] += amount
        by_day[spend.day] += amount.tokens
    days = [DayStats(day, tokens, 0) for day, tokens in by_day.items()]
    costs, currency = defaultdict[tuple[str, str], float](float), ""
    try:
        report = await state.tendril.client.ask(UsageReport, "GET", "/usage")
    except ModelError as error:
        _log.warning("web.no_costs", error=str(error))
    else:
        currency = report.currency
        for each in report.data:
            if each.cost:
                costs[each.tendril, each.model] += each.cost
    return page(
        request,
        "usage.html",
        costs=sorted(costs.items(), key=lambda each: -each[1])[:_MAX_PEOPLE],
        cost=sum(costs.values()),
        currency=currency,
        tables=[
            (title, sorted(table.items(), key=lambda each: -each[1].tokens)[:_MAX_PEOPLE])
            for title, table in tables.items()
        ],
        total=sum((amount for *_, amount in spent), UsageAmount()),
        chart=BarChart.from_days(days, begin, today),
    )


@router.get("/models")
async def show_models(
    request: Request, state: AppStateDep, used: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Show the models that the agent server can fetch, and how far their downloads are; `used` is
    the one that has just been chosen."""
    models: list[FetchableModel] = []
    try:
        found = await state.tendril.client.ask(FetchableModels, "GET", "/v1/catalogue")
        models = found.data
    except ModelError as error:
        _log.warning("web.no_catalogue", error=str(error))
    card = await state.tendril.resources.catalog.card()
    waits = any(each.name == used and not (each.is_used or each.trouble) for each in models)
    return page(request, "models.html", models=models, card=card, used=used if waits else "")


@router.post("/models")
async def choose_model(request: Request, state: AppStateDep) -> Response:
    """Have the agent server fetch the model called `name`, or, with the `action` use, answer with
    it."""
    form = await read_form(request)
    name, is_used = form.get("name", ""), form.get("action") == "use"
    try:
        await change_model(state.tendril.client, name, "use" if is_used else "pull")
    except ModelError as error:
        _log.warning("web.model_not_changed", error=str(error))
        raise HTTPException(503, "The agent server cannot do that now; try again.") from error
    return see_other(with_query("/models", used=name if is_used else None))


@router.get("/settings")
async def show_settings(request: Request, state: AppStateDep) -> Response:
    """Show every setting with its value and origin, as `terrarium config show` does: secrets are
    hidden."""
    entries = groupby(config_entries(state.tendril.config), lambda each: each.table)
    tables = [(table, list(each)) for table, each in entries]
    return page(request, "settings.html", tables=tables)


@router.get("/attention")
async def show_attention(request: Request, state: AppStateDep, scope: ScopeDep) -> Response:
    """Show what was felt in each public room within a day, and the moments at which the model was
    woken, or could have been, with precision and recall by how they were judged."""
    now, weights = datetime.now(UTC), state.tendril.agent.signal_weights
    signals = await Signals(state.log.database).since(now - LIFETIME)
    times = [now - _CHARTED * (1 - step / _POINTS) for step in range(_POINTS + 1)]
    # Drawn as they were felt: also those that are known since, but no question that was never felt.
    felt = (each for each in signals if each.time > times[0] and each.outcome not in _NEVER_FELT)
    recent = sorted(
        (replace(each, ended=None) for each in felt), key=lambda each: (each.place, each.kind)
    )
    rooms = []
    for place, group in groupby(recent, lambda each: each.place):
        here = list(group)
        values = {"together": [pressure(here, weights, time) for time in times]}
        for kind, same in groupby(here, lambda each: each.kind):
            alike = list(same)
            values[kind] = [change(alike, time) for time in times]
        charts = [(name, spark(found, *_SPARK), max(found)) for name, found in values.items()]
        rooms.append((place, charts))
    moments = []
    ended = [each for each in signals if each.ended and (each.has_woken or each.kind == "question")]
    for each in ended[:_LISTED]:
        line = await state.log.get(scope, each.event_id) if each.event_id else None
        moments.append((each, line, await state.pastes.get(each.paste) if each.paste else None))
    energy = [each.energy for each in reversed(signals) if each.ended and each.time > times[0]]
    return page(
        request,
        "attention.html",
        rooms=rooms,
        moments=moments,
        energy=(spark(energy, *_SPARK), energy[-1] if energy else 1.0),
        judged=judged(signals),
    )


@router.post("/attention/{number}/{verdict}")
async def judge(
    state: AppStateDep,
    number: Annotated[int, Path(ge=1, lt=2**63)],
    verdict: Literal["good", "bad"],
) -> Response:
    """Store whether a moment was one to speak."""
    await Signals(state.log.database).judge(number, is_good=verdict == "good")
    return see_other(f"/attention#{number}")


def judged(signals: Sequence[Signal]) -> tuple[int, float | None, float | None]:
    """Return how many moments people have judged, the share of good ones among those that woke the
    model (precision), and the share that woke it among the good ones (recall)."""
    known = [each for each in signals if each.is_good is not None]
    good = [each for each in known if each.is_good]
    woke = [each for each in known if each.has_woken]
    hits = sum(each.has_woken for each in good)
    return len(known), hits / len(woke) if woke else None, hits / len(good) if good else None
