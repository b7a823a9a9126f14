"""The traces of a tendril's turns: how one begins, and how long they are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from llm.client import Call
from llm.clock import Clock
from llm.limits import Profile
from llm.log_view import LogView
from llm.settings import AgentSettings
from llm.trace import Beside, Trace
from storage.errors import StorageError
from storage.runs import Run, Runs

_EVERY = 3600.0  # seconds

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a turn is about: who asks what where, and what has set it off.

    `view` has the event of the log that asks; the trace of a `private` one names nobody; `key`
    names the run for somebody who may ask the same again. Of what nobody `keeps` it has numbers
    alone.
    """

    conversation: str
    text: str
    view: LogView | None
    profile: Profile
    private: bool
    keeps: bool
    key: str

    def trace(
        self, runs: Runs, call: Call, settings: AgentSettings, clock: Clock, beside: Beside
    ) -> Trace:
        """The trace of the turn, kept with `runs`."""
        run = Run(
            self.key or call.id,
            self.conversation if self.keeps else "",
            self.profile,
            call.model or settings.model,
            clock.now(),
            self.view.anchor if self.view else 0,
            self.private or not self.keeps,
            settings.trace_words,
            self.text,
        )
        return Trace(run, runs, beside, self.view.line if self.view else None)


async def keep(runs: Runs, days: Callable[[], int], clock: Clock) -> None:
    """Remove traces older than `days`, now and every hour, for ever."""
    while True:
        try:
            await runs.expire(clock.now(), days())
        except StorageError as error:  # another hour is soon enough
            _log.error("runs.not_expired", error=str(error))
        await asyncio.sleep(_EVERY)
