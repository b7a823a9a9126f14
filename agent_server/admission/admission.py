"""Engines, each behind an admission queue of its own."""

from __future__ import annotations

from agent_server.admission.admitted_engine import AdmittedEngine
from agent_server.admission.queue import AdmissionQueue
from agent_server.admission.scheduler import Scheduler
from agent_server.engine_protocol import Engine
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.embeddings import EmbeddingEngine
from agent_server.engines.factory import create_engine
from agent_server.metering.key_usage import Metering
from agent_server.settings.admission import AdmissionSettings
from agent_server.settings.models import ModelConfig
from terrarium.config import Config

EMBEDDING_SLOTS = 4
"""Requests that take turns with the embedding model, batch by batch."""

UPSTREAM_PLACES = 32
"""Requests that an upstream is trusted to run at once."""


class Admission:
    """The way to the engines."""

    def __init__(self, config: Config, metering: Metering) -> None:
        self._settings = config.section(AdmissionSettings)
        self._metering = metering

    def admitted_engine(self, name: str, settings: ModelConfig) -> AdmittedEngine:
        """The engine of the model `name`, behind a gate, not yet running. Raises ConfigError."""
        places = len(settings.urls) * UPSTREAM_PLACES or settings.slots
        return self.wrap(create_engine(name, settings), name, places, yields=not settings.urls)

    def embedding_engine(self) -> AdmittedEngine:
        """Make the engine of this server's own embedding model."""
        return self.wrap(EmbeddingEngine(), EMBEDDER, EMBEDDING_SLOTS)

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
