"""All that the servers share, in one process: queues, accounts, responses and tendrils' reports.

Responses and reports are in memory, so a successor of this process has none of them; tendrils
report again within ten seconds. This module does not depend on Ray.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_server.ray.shared_admission import SharedAdmission
from agent_server.response_store import LocalResponseStore, StoredResponse
from agent_server.tendril_registry import LocalTendrilRegistry, RegisteredTendril, TendrilReport
from terrarium.config import Config


class SharedState(SharedAdmission):
    """The methods that servers call in the process of the queues.

    Those of responses and tendrils answer at once, and can be called again if an answer is lost.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._responses = LocalResponseStore()
        self._tendrils = LocalTendrilRegistry()

    async def save_response(self, owner: str, stored: StoredResponse) -> None:
        """Store a response, as `LocalResponseStore.save`."""
        await self._responses.save(owner, stored)

    async def get_response(self, owner: str, identity: str) -> StoredResponse | None:
        """Return a response, as `LocalResponseStore.get`."""
        return await self._responses.get(owner, identity)

    async def delete_response(self, owner: str, identity: str) -> bool:
        """Delete a response, as `LocalResponseStore.delete`."""
        return await self._responses.delete(owner, identity)

    async def record_tendril(self, name: str, key: str, report: TendrilReport) -> bool:
        """Store a tendril's report, as `LocalTendrilRegistry.record`."""
        return await self._tendrils.record(name, key, report)

    async def present_tendrils(self) -> Sequence[RegisteredTendril]:
        """Return the live tendrils, as `LocalTendrilRegistry.present`."""
        return await self._tendrils.present()
