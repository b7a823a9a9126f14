"""The factory of engines, each behind its own admission queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent_server.admission.admitted_engine import AdmittedEngine, EngineQueues
from agent_server.admission.queue import AdmissionQueue, RequestQueue
from agent_server.admission.scheduler import Scheduler
from agent_server.engine_protocol import Engine
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.embeddings import EmbeddingEngine
from agent_server.engines.factory import create_engine
from agent_server.metering.accounts import Accounts, Metering
from agent_server.response_store import ResponseStore
from agent_server.settings.admission import AdmissionSettings
from agent_server.settings.models import ModelConfig, ModelSettings
from agent_server.tendril_registry import TendrilRegistry
from terrarium.config import Config

EMBEDDING_SLOTS = 4
"""Embeddings requests admitted at once; the embedding model interleaves their batches."""

COUNTING_SLOTS = 2
"""Requests to count tokens that one engine handles at once."""


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """The scheduling rules, which are the same on every server; tests pass others.

    `preemptive`: an interactive request preempts background requests that have no first token yet,
    and nothing is started beside it for a while (see `scheduler.py`). None applies that to the
    embedded engine only, where requests share one processor. `background_share` is the share of
    tokens for background requests on a busy engine; `max_wait` and `max_wait_background` are the
    longest waits, in seconds.
    """

    preemptive: bool | None = None
    background_share: float = 0.1
    max_wait: float = 120
    max_wait_background: float = 1800

    def queue(self, slots: int, most_waiting: int, *, preemptive: bool) -> AdmissionQueue:
        """Create a queue with these rules for an engine with so many slots."""
        scheduler = Scheduler(
            slots,
            reserved=reserved_slots(slots),
            share=self.background_share,
            most_waiting=most_waiting,
            preemptive=preemptive,
        )
        return AdmissionQueue(
            scheduler, interactive=self.max_wait, background=self.max_wait_background
        )


class SharedResources(Protocol):
    """The engines, queues, accounts, responses and tendrils that several servers share."""

    def engine(self, name: str, settings: ModelConfig) -> Engine:
        """Return a client of the engine of the model `name`. Raises ConfigError."""

    def queue(self, name: str) -> RequestQueue:
        """Return a client of the queue of the model `name`."""

    def accounts(self) -> Accounts:
        """Return a client of the accounts of keys and budgets."""

    def responses(self) -> ResponseStore:
        """Return a client of the stored responses."""

    def tendrils(self) -> TendrilRegistry:
        """Return a client of the tendrils' reports."""


class Admission:
    """Creates engines, each behind its own admission queue."""

    def __init__(
        self,
        config: Config,
        metering: Metering,
        policy: AdmissionPolicy | None = None,
        shared: SharedResources | None = None,
    ) -> None:
        self._settings = config.section(AdmissionSettings)
        self._models = config.section(ModelSettings).folder
        self._metering = metering
        self._policy = policy or AdmissionPolicy()
        self._shared = shared

    def admitted_engine(self, name: str, settings: ModelConfig) -> AdmittedEngine:
        """Create the engine of the model `name`, not yet started. Raises ConfigError."""
        if self._shared is not None:
            engine = self._shared.engine(name, settings)
            return self._wrap(engine, name, self._shared.queue(name))
        engine, preemptive = create_engine(name, settings), self._policy.preemptive
        preemptive = not settings.urls if preemptive is None else preemptive
        return self._wrap(engine, name, self._queue(settings.slot_count, preemptive=preemptive))

    def embedding_engine(self) -> AdmittedEngine:
        """Create the engine of this server's own embedding model."""
        queue = self._queue(EMBEDDING_SLOTS, preemptive=bool(self._policy.preemptive))
        return self._wrap(EmbeddingEngine(self._models), EMBEDDER, queue)

    def _wrap(self, engine: Engine, name: str, queue: RequestQueue) -> AdmittedEngine:
        # Counting tokens has its own queue, so that it does not wait for answers.
        queues = EngineQueues(queue, self._queue(COUNTING_SLOTS, preemptive=False))
        return AdmittedEngine(engine, name, queues, self._metering)

    def _queue(self, slots: int, *, preemptive: bool) -> AdmissionQueue:
        return self._policy.queue(slots, self._settings.max_waiting, preemptive=preemptive)


def reserved_slots(slots: int) -> int:
    """Return the slots that background leaves free: a quarter, but at least one of two or more."""
    return 0 if slots == 1 else max(1, slots // 4)
