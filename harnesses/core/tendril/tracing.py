"""The traces of a tendril's turns: their creation and their expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from harnesses.core.tendril.resources import TendrilResources
from harnesses.core.tendril.turn_request import TurnRequest
from llm.agent.trace import Beside, Trace
from llm.client.client import RequestOptions
from storage.db.errors import StorageError
from storage.runs.runs import Run, Runs
from terrarium.clock import Clock

_EVERY = 3600.0  # seconds

_log = structlog.get_logger()


def trace_of(
    tendril: TendrilResources, request: TurnRequest, options: RequestOptions, background: Beside
) -> Trace:
    """Return the trace of a turn, stored in the tendril's runs; `background` finishes it.

    It names nobody where the conversation is private, and holds only numbers where nobody has asked
    and nothing is remembered. Of a question of which nothing is to be kept, nothing is stored.
    """
    log_window = request.log_window
    run = Run(
        request.run or options.id,
        request.conversation if request.keeps else "",
        request.profile,
        options.model or tendril.agent.model,
        tendril.clock.now(),
        log_window.anchor if log_window else 0,
        request.private or not request.keeps,
        tendril.agent.trace_words,
        request.text,
        request.origin.run if request.origin else "",
    )
    store = None if request.is_unrecorded else tendril.runs
    return Trace(run, store, background, log_window.pending_event if log_window else None)


async def expire_runs(runs: Runs, days: Callable[[], int], clock: Clock) -> None:
    """Delete traces older than `days` now and every hour, until cancelled."""
    while True:
        try:
            await runs.expire(clock.now(), days())
        except StorageError as error:  # another hour is soon enough
            _log.error("runs.not_expired", error=str(error))
        await asyncio.sleep(_EVERY)
