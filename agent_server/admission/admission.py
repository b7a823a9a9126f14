"""Engines, each behind an admission queue of its own."""

from __future__ import annotations

from dataclasses import dataclass

from agent_server.admission.admitted_engine import AdmittedEngine, EngineQueues
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

EMBEDDING_PLACES = 4
"""Requests that take turns with the embedding model, batch by batch."""

COUNTING_PLACES = 2
"""Prompts whose tokens one engine counts at once."""


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """The rules that are the same on every server; tests take others.

    `yields`: a background request without a first token is preempted by an interactive one, which
    is alone until most answers are whole. None: at the embedded engine only, where requests share
    one processor. `background_share` is the share of tokens that background gets when all is busy,
    `max_wait` and `max_wait_background` are how many seconds a request may wait.
    """

    yields: bool | None = None
    background_share: float = 0.1
    max_wait: float = 120
    max_wait_background: float = 1800


class Admission:
    """Puts each engine behind an admission queue."""

    def __init__(
        self, config: Config, metering: Metering, policy: AdmissionPolicy | None = None
    ) -> None:
        self._settings = config.section(AdmissionSettings)
        self._metering = metering
        self._policy = policy or AdmissionPolicy()

    def admitted_engine(self, name: str, settings: ModelConfig) -> AdmittedEngine:
        """Make the engine of the model `name`, not yet running. Raises ConfigError."""
        engine = create_engine(name, settings)
        return self._wrap(engine, name, settings.places, yields=not settings.urls)

    def embedding_engine(self) -> AdmittedEngine:
        """Make the engine of this server's own embedding model."""
        return self._wrap(EmbeddingEngine(), EMBEDDER, EMBEDDING_PLACES, yields=False)

    def _wrap(self, engine: Engine, name: str, places: int, *, yields: bool) -> AdmittedEngine:
        wanted = self._policy.yields
        queues = EngineQueues(
            self._queue(places, yields=yields if wanted is None else wanted),
            self._queue(COUNTING_PLACES, yields=False),
        )
        return AdmittedEngine(engine, name, queues, self._metering)

    def _queue(self, places: int, *, yields: bool) -> AdmissionQueue:
        policy = self._policy
        scheduler = Scheduler(
            places,
            reserved=_reserved(places),
            share=policy.background_share,
            most_waiting=self._settings.max_waiting,
            yields=yields,
        )
        return AdmissionQueue(
            scheduler, interactive=policy.max_wait, background=policy.max_wait_background
        )


def _reserved(places: int) -> int:
    """Return how many of `places` background leaves free: a quarter, and at least one of two."""
    return 0 if places == 1 else max(1, places // 4)
