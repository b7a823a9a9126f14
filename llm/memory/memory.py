"""The memory of a tendril, room by room, and the background jobs that make it."""

from __future__ import annotations

from collections.abc import Mapping

from llm.client.client import AgentClient, ModelCatalog
from llm.memory.consolidation import Consolidator
from llm.memory.room import RoomMemory
from llm.memory.schedule import MemoryScheduler
from llm.memory.services import MemorySearch, MemoryServices
from llm.scheduling.worker import Handler
from storage.db.database import Database
from storage.memory.deletion import TEND
from storage.memory.memories import person_of
from storage.queues.jobs import Job, Jobs
from terrarium.clock import Clock
from terrarium.config import Config


class TendrilMemory:
    """The memory in a tendril's file. Where the log is indexed by meaning, memories are too."""

    def __init__(
        self,
        tendril: str,
        database: Database,
        jobs: Jobs,
        client: AgentClient,
        catalog: ModelCatalog,
        clock: Clock,
        config: Config,
    ) -> None:
        services = MemoryServices.open(tendril, database, jobs, client, catalog, clock, config)
        self.memories = services.memories
        self.rooms = services.rooms
        self._services = services
        self._scheduler = MemoryScheduler(services)
        self._search = MemorySearch(services)
        self._consolidator = Consolidator(services)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of its jobs, by kind."""
        own = self._consolidator.handlers()
        return {
            TEND: self._scheduler.tend,
            **{kind: self._then_reschedule(work) for kind, work in own.items()},
        }

    def for_room(self, room: str, conversation: str, person: str) -> RoomMemory:
        """Return the memory of a room as it serves a conversation with a person."""
        return RoomMemory(
            self._services, self._search, self._scheduler, room, conversation, person_of(person)
        )

    async def schedule_check(self, room: str = "") -> None:
        """Look for due jobs in a room, or in all, as soon as the worker is idle.

        Raises StorageError.
        """
        await self._scheduler.schedule_check(room)

    async def on_cleared(self, conversation: str, room: str) -> None:
        """Schedule what a cleared conversation leaves to rebuild, if others share its room.

        Raises StorageError.
        """
        if room != conversation:
            await self._scheduler.schedule_check(room)

    async def compact(self, room: str, through: int) -> None:
        """Schedule the summary of a room up to a turn. Raises StorageError."""
        await self._scheduler.schedule_summary(room, through)

    def _then_reschedule(self, work: Handler) -> Handler:
        """Wrap a job, so that it looks in the end if more has become due meanwhile."""

        async def run_and_reschedule(job: Job) -> None:
            await work(job)
            await self._scheduler.schedule_due(job.payload["room"])

        return run_and_reschedule
