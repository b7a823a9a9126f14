"""What all engines share: quotas, usage, metrics; and a gate for each."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime

from agent_server.admission.admitted_engine import AdmittedEngine, Metering
from agent_server.admission.queue import AdmissionQueue
from agent_server.admission.scheduler import Scheduler
from agent_server.engine_protocol import Engine
from agent_server.engines.factory import create_engine
from agent_server.settings.admission import AdmissionSettings
from agent_server.settings.models import ModelConfig

UPSTREAM_PLACES = 32
"""Requests that an upstream is trusted to run at once."""


class Admission:
    """The way to the engines."""

    def __init__(self, settings: AdmissionSettings, metering: Metering) -> None:
        self._settings = settings
        self._metering = metering

    async def restore(self) -> None:
        """Take up what was used today before this start. Raises Unavailable."""
        now = time.time()
        today = datetime.fromtimestamp(now, UTC).date()
        used: Counter[str] = Counter()
        for usage_key, amount in (await self._metering.recorder.read(today, today)).items():
            used[usage_key.tendril] += amount.prompt + amount.completion
        for tendril, tokens in used.items():
            self._metering.quotas.seed(tendril, tokens, now)

    def admitted_engine(self, name: str, settings: ModelConfig) -> AdmittedEngine:
        """The engine of the model `name`, behind a gate, not yet running. Raises ConfigError."""
        places = len(settings.urls) * UPSTREAM_PLACES or settings.slots
        return self.wrap(create_engine(name, settings), name, places, yields=not settings.urls)

    def wrap(
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
        queue = AdmissionQueue(
            scheduler,
            interactive=settings.max_wait,
            background=settings.max_wait_background,
        )
        return AdmittedEngine(engine, name, queue, self._metering)
