"""Clients of the stored responses and of the tendrils' reports that several servers share."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from agent_server.errors import EngineUnavailable
from agent_server.ray.queue_client import QueueLink
from agent_server.response_store import StoredResponse
from agent_server.tendril_registry import RegisteredTendril, TendrilReport

log = structlog.get_logger()


class ResponseStoreClient:
    """Client of the stored responses in another process; fits `ResponseStore`."""

    def __init__(self, link: QueueLink) -> None:
        self._link = link

    async def save(self, owner: str, stored: StoredResponse) -> None:
        """Store a response; if the process cannot be reached, log a warning instead."""
        try:
            await self._link.call("save_response", owner, stored)
        except EngineUnavailable:
            log.warning("response.unsaved")

    async def get(self, owner: str, identity: str) -> StoredResponse | None:
        """Return a response, None if it is not stored. Raises EngineUnavailable."""
        stored: StoredResponse | None = await self._link.call("get_response", owner, identity)
        return stored

    async def delete(self, owner: str, identity: str) -> bool:
        """Delete a response; return False if there is none. Raises EngineUnavailable."""
        is_deleted: bool = await self._link.call("delete_response", owner, identity)
        return is_deleted


class TendrilRegistryClient:
    """Client of the tendrils' reports in another process; fits `TendrilRegistry`."""

    def __init__(self, link: QueueLink) -> None:
        self._link = link

    async def record(self, name: str, key: str, report: TendrilReport) -> bool:
        """Store a report; return False if the key has too many tendrils.

        Raises EngineUnavailable.
        """
        is_recorded: bool = await self._link.call("record_tendril", name, key, report)
        return is_recorded

    async def present(self) -> Sequence[RegisteredTendril]:
        """Return the live tendrils, ordered by name, then key. Raises EngineUnavailable."""
        tendrils: Sequence[RegisteredTendril] = await self._link.call("present_tendrils")
        return tendrils
