"""The resources that the servers of a cluster share, as one of them uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_server.admission.queue import RequestQueue
from agent_server.engine_protocol import Engine
from agent_server.engines.factory import create_engine
from agent_server.metering.accounts import Accounts
from agent_server.ray.engines import ReplicatedEngine
from agent_server.ray.queue_client import AccountsClient, QueueLink
from agent_server.ray.state_clients import ResponseStoreClient, TendrilRegistryClient
from agent_server.response_store import ResponseStore
from agent_server.settings.models import ModelConfig
from agent_server.settings.prices import UsageSettings
from agent_server.tendril_registry import TendrilRegistry
from terrarium.config import Config


class ClusterResources:
    """The engines of a cluster, and its `SharedState`; fits `SharedResources`.

    Each server sends requests to upstreams itself, within the slots of the shared queue.
    """

    def __init__(self, config: Config, link: QueueLink, handles: Mapping[str, Any]) -> None:
        self._has_budgets = bool(config.section(UsageSettings).budgets)
        self._link = link
        self._handles = handles

    def engine(self, name: str, settings: ModelConfig) -> Engine:
        """Return a client of the engine of the model `name`. Raises ConfigError."""
        if name in self._handles:
            return ReplicatedEngine(self._handles[name])
        return create_engine(name, settings)

    def queue(self, name: str) -> RequestQueue:
        """Return a client of the queue of the model `name`."""
        return self._link.queue(name)

    def accounts(self) -> Accounts:
        """Return a client of the accounts of keys and budgets."""
        return AccountsClient(self._link, has_budgets=self._has_budgets)

    def responses(self) -> ResponseStore:
        """Return a client of the stored responses."""
        return ResponseStoreClient(self._link)

    def tendrils(self) -> TendrilRegistry:
        """Return a client of the tendrils' reports."""
        return TendrilRegistryClient(self._link)
