"""What all engines share: quotas, usage, metrics; and a gate for each."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime

from agent_server.admission.admitted_engine import AdmittedEngine, Books
from agent_server.admission.gate import Gate
from agent_server.admission.scheduler import Scheduler
from agent_server.engine_protocol import Engine
from agent_server.engines.factory import engine_for
from agent_server.settings.admission import AdmissionSettings
from agent_server.settings.models import OneModel

UPSTREAM_PLACES = 32
"""Requests that an upstream is trusted to run at once."""


class Admission:
    """The way to the engines."""

    def __init__(self, settings: AdmissionSettings, books: Books) -> None:
        self._settings = settings
        self._books = books

    async def restore(self) -> None:
        """Take up what was used today before this start. Raises Unavailable."""
        now = time.time()
        today = datetime.fromtimestamp(now, UTC).date()
        used: Counter[str] = Counter()
        for entry, amount in (await self._books.ledger.read(today, today)).items():
            used[entry.tendril] += amount.prompt + amount.completion
        for tendril, tokens in used.items():
            self._books.quotas.restore(tendril, tokens, now)

    def guarded(self, name: str, settings: OneModel) -> AdmittedEngine:
        """The engine of the model `name`, behind a gate, not yet running. Raises ConfigError."""
        places = len(settings.urls) * UPSTREAM_PLACES or settings.slots
        return self.guard(engine_for(name, settings), name, places, yields=not settings.urls)

    def guard(
        self, engine: Engine, name: str, places: int, *, yields: bool = False
    ) -> AdmittedEngine:
        """Put `engine`, which serves the model `name`, behind a gate.

        It runs `places` requests at once, unless the settings say otherwise; with `yields` they
        share this machine's processor.
        """
        settings = self._settings
        places = settings.places or places
        scheduler = Scheduler(
            places,
            reserved=settings.reserved_of(places),
            share=settings.background_share,
            most_waiting=settings.max_waiting,
            yields=yields if settings.yields is None else settings.yields,
        )
        gate = Gate(
            scheduler,
            interactive=settings.max_wait,
            background=settings.max_wait_background,
        )
        return AdmittedEngine(engine, name, gate, self._books)
