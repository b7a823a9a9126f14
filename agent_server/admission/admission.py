"""The factory of engines, each behind its own admission queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_server.admission.admitted_engine import AdmittedEngine
from agent_server.admission.queue import AdmissionQueue
from agent_server.admission.scheduler import Scheduler
from agent_server.engine_protocol import Engine
from agent_server.engines.anthropic import AnthropicEngine
from agent_server.engines.embedded import EmbeddedEngine
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.embeddings import EmbeddingEngine
from agent_server.engines.llama_child import EngineSpec
from agent_server.engines.openai import OpenAIEngine
from agent_server.engines.upstream_pool import UpstreamConfig
from agent_server.metering.accounts import Metering
from agent_server.model_catalogue.machine import Machine
from agent_server.model_files.gguf import fitting_context
from agent_server.model_files.store import gguf, model_file
from agent_server.settings.models import ModelConfig, ModelSettings

EMBEDDING_SLOTS = 4
"""Embeddings requests admitted at once; the embedding model interleaves their batches."""

MIN_WAITING, WAITING_PER_SLOT = 256, 8
"""Requests that may wait for one engine: at least so many, and so many for each of its slots."""

COUNTING_SLOTS = 2
"""Requests to count tokens that one engine handles at once."""


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """The scheduling rules, which are the same on every server; tests pass others.

    `preemptive`: an interactive request preempts background requests that have no first token yet,
    and nothing is started beside it for a while (see `scheduler.py`). None applies that to the
    embedded engine only, where requests share one processor. `background_share` is the share of
    tokens for background requests on a busy engine; `max_wait` and `max_wait_background` are the
    longest waits, in seconds. At most `most_waiting` requests wait, by default eight for each slot,
    and at least 256; one more is refused.
    """

    preemptive: bool | None = None
    background_share: float = 0.1
    max_wait: float = 120
    max_wait_background: float = 1800
    most_waiting: int | None = None

    def queue(self, slots: int, *, preemptive: bool) -> AdmissionQueue:
        """Create a queue with these rules for an engine with so many slots."""
        scheduler = Scheduler(
            slots,
            reserved=reserved_slots(slots),
            share=self.background_share,
            most_waiting=self.most_waiting or max(MIN_WAITING, WAITING_PER_SLOT * slots),
            preemptive=preemptive,
        )
        return AdmissionQueue(
            scheduler, interactive=self.max_wait, background=self.max_wait_background
        )


ReplicaFactory = Callable[[AdmissionQueue], Engine]
"""Makes an engine of which there are several; while it runs, it sets the slots of its queue, which
are those of one at first, to those of all."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Creates engines, each behind its own admission queue; those of some names are replicated."""

    metering: Metering
    policy: AdmissionPolicy
    replicated: Mapping[str, ReplicaFactory]

    def admitted_engine(self, name: str, settings: ModelConfig) -> AdmittedEngine:
        """Create the engine of the model `name`, not yet started. Raises ConfigError."""
        make_replicas, preemptive = self.replicated.get(name), self.policy.preemptive
        if preemptive is None:
            preemptive = not settings.urls and make_replicas is None
        queue = self.policy.queue(settings.slot_count, preemptive=preemptive)
        engine = make_replicas(queue) if make_replicas else create_engine(name, settings)
        return self._wrap(engine, name, queue)

    def embedding_engine(self, models: Path) -> AdmittedEngine:
        """Create the engine of this server's own embedding model, in the folder `models`."""
        queue = self.policy.queue(EMBEDDING_SLOTS, preemptive=bool(self.policy.preemptive))
        return self._wrap(EmbeddingEngine(models), EMBEDDER, queue)

    def _wrap(self, engine: Engine, name: str, queue: AdmissionQueue) -> AdmittedEngine:
        counting = self.policy.queue(COUNTING_SLOTS, preemptive=False)
        return AdmittedEngine(engine, name, queue, counting, self.metering)


def create_engine(name: str, settings: ModelConfig) -> Engine:
    """Create the engine of the model `name`, not yet started. Raises ConfigError."""
    if settings.urls:
        key = settings.upstream_key
        config = UpstreamConfig(
            settings.urls,
            key.get_secret_value() if key else None,
            settings.upstream_model,
            settings.timeout,
            slots=settings.slot_count,
        )
        return (AnthropicEngine if settings.api == "anthropic" else OpenAIEngine)(config)
    if isinstance(settings, ModelSettings):
        path = model_file(settings)
    else:
        assert settings.path is not None  # settings_of_models requires one
        path = gguf(settings.path)
    spec = EngineSpec(
        path=str(path),
        name=name,
        context=settings.context
        or fitting_context(path, settings.slot_count, Machine.here().memory),
        slots=settings.slot_count,
        threads=settings.threads,
        thinks=settings.reasoning is True,
    )
    return EmbeddedEngine(spec, timeout=settings.timeout)


def reserved_slots(slots: int) -> int:
    """Return the slots that background leaves free: a quarter, but at least one of two or more."""
    return 0 if slots == 1 else max(1, slots // 4)
