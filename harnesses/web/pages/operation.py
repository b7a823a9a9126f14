"""The pages for operators: the tendrils, the models and their usage, and the settings."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, HTTPException, Query
from starlette.requests import Request
from starlette.responses import Response

from harnesses.core.effective import config_entries
from harnesses.core.permalinks import with_query
from harnesses.core.tendril.status import read_reports
from harnesses.web.app_state import AppStateDep, require_full
from harnesses.web.auth.middleware import see_other
from harnesses.web.rendering.charts import BarChart
from harnesses.web.rendering.view import page, read_form
from llm.client.catalogue import FetchableModel, change_model, read_catalogue, read_usage
from llm.messages.errors import ModelError
from storage.chat_log.event import is_private
from storage.chat_log.statistics import DayStats
from storage.runs import reader
from storage.usage.usage import UsageAmount

USAGE_DAYS = 30
_MAX_PEOPLE = 20
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
    by_tendril, by_purpose, by_person = (dict[str, UsageAmount]() for _ in range(3))
    by_day = Counter[date]()
    for tendril, spend, amount in spent:
        # A conversation on a channel is that of a person there (NETWORK/CHANNEL/NICK).
        is_public = not is_private(spend.room.partition("/")[2])
        person = spend.conversation if is_public and spend.conversation else ""
        for table, key in (
            (by_tendril, tendril),
            (by_purpose, spend.purpose),
            (by_person, person),
        ):
            table[key] = table.get(key, UsageAmount()) + amount
        by_day[spend.day] += amount.tokens
    tables = [
        (title, sorted(table.items(), key=lambda each: -each[1].tokens)[:_MAX_PEOPLE])
        for title, table in (
            ("Tendril", by_tendril),
            ("Purpose", by_purpose),
            ("Channel and person", by_person),
        )
    ]
    days = [DayStats(day, tokens, 0) for day, tokens in by_day.items()]
    costs, currency = defaultdict[tuple[str, str], float](float), ""
    try:
        report = await read_usage(state.tendril.client)
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
        tables=tables,
        total=sum(by_tendril.values(), UsageAmount()),
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
        models = (await read_catalogue(state.tendril.client)).data
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
