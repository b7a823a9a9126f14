"""The page of what tendrils have felt, unasked: charts of it, and whether it was worth speaking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path
from starlette.requests import Request
from starlette.responses import Response

from harnesses.core.attention import change, pressure
from harnesses.web.app_state import AppStateDep, ScopeDep, require_full
from harnesses.web.auth.middleware import see_other
from harnesses.web.rendering.charts import spark
from harnesses.web.rendering.view import page
from storage.queues.unasked import LIFETIME, Signal, Signals

_CHARTED, _POINTS = timedelta(days=1), 144
_LISTED = 50
_NEVER_FELT = ("answered", "in the pause")
_SPARK = (288, 48)  # width and height
router = APIRouter(include_in_schema=False)


@router.get("/attention", dependencies=[Depends(require_full)])
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
    for each in [each for each in signals if each.ended and _counts(each)][:_LISTED]:
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


@router.post("/attention/{number}/{verdict}", dependencies=[Depends(require_full)])
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


def _counts(signal: Signal) -> bool:
    return signal.has_woken or signal.kind == "question"
