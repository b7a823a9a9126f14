"""The traces of a tendril's turns: how one begins, and how long they are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from harnesses.core.tendril.turn_request import TurnRequest
from llm.agent.trace import Beside, Trace
from llm.client.client import RequestOptions
from llm.client.settings import AgentSettings
from storage.db.errors import StorageError
from storage.runs.runs import Run, Runs
from terrarium.clock import Clock

_EVERY = 3600.0  # seconds

_log = structlog.get_logger()


def trace_of(
    request: TurnRequest,
    options: RequestOptions,
    settings: AgentSettings,
    runs: Runs,
    clock: Clock,
    beside: Beside,
) -> Trace:
    """Return the trace of a turn, kept with `runs`. It names nobody where the conversation is
    private, and of what nobody keeps it has numbers alone."""
    log_window = request.log_window
    run = Run(
        request.run or options.id,
        request.conversation if request.keeps else "",
        request.profile,
        options.model or settings.model,
        clock.now(),
        log_window.anchor if log_window else 0,
        request.private or not request.keeps,
        settings.trace_words,
        request.text,
    )
    return Trace(run, runs, beside, log_window.pending_event if log_window else None)


async def expire_runs(runs: Runs, days: Callable[[], int], clock: Clock) -> None:
    """Remove traces older than `days`, now and every hour, for ever."""
    while True:
        try:
            await runs.expire(clock.now(), days())
        except StorageError as error:  # another hour is soon enough
            _log.error("runs.not_expired", error=str(error))
        await asyncio.sleep(_EVERY)
