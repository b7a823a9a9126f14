"""The memory of a tendril, room by room: what prompts show of it, its tools, its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import structlog

from llm.client.client import AgentClient
from llm.client.model_catalog import ModelCatalog
from llm.memory.consolidation import Consolidator, ConsolidatorServices
from llm.memory.personal import PersonalMemory
from llm.memory.prompt_memory import sections_for_prompt
from llm.memory.schedule import MOST_NOTES, JobKind, PendingJob, pending_jobs
from llm.memory.search import MemorySearch
from llm.memory.settings import MemorySettings
from llm.memory.tools import MemoryTools
from llm.messages.errors import Unreachable
from llm.messages.sections import PromptSection
from llm.scheduling.worker import Handler
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.memory.consolidation_state import ConsolidationStore
from storage.memory.deletion import TEND
from storage.memory.memories import Memories, Memory, MemoryKind, person_of
from storage.memory.vectors import MemoryVectors
from storage.queues.jobs import Job, Jobs
from storage.settings import StorageSettings
from terrarium.clock import Clock
from terrarium.config import Config

_PRIORITY = 200

_log = structlog.get_logger()


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
        embeds = config.section(StorageSettings).semantic
        self._settings = config.section(MemorySettings)
        self._catalog = catalog
        self._jobs = jobs
        self._clock = clock
        self.memories = Memories(database)
        self.rooms = ConsolidationStore(database)
        self._vectors = MemoryVectors(database)
        self._embeds = embeds
        self._finding = MemorySearch(self.memories, self._vectors, client, f"{tendril}/memory")
        self._making = Consolidator(
            ConsolidatorServices(
                tendril,
                client,
                catalog,
                clock,
                self.memories,
                self.rooms,
                self._vectors,
                self.learns,
                embeds,
            )
        )

    def handlers(self) -> Mapping[str, Handler]:
        """The jobs that it adds, by kind."""
        made = {kind: self._going_on(work) for kind, work in self._making.handlers().items()}
        return {TEND: self._tend_rooms, **made}

    def for_room(self, room: str, conversation: str, person: str) -> RoomMemory:
        """The memory of a room as it serves a conversation with a person."""
        return RoomMemory(self, room, conversation, person_of(person))

    async def learns(self) -> bool:
        """Whether the model is asked to make something of what was said.

        Raises Unreachable while nobody knows whether it is good enough for that: what it would
        make otherwise is remembered for good. The job that asks is done later then.
        """
        if self._settings.learn != "auto":
            return self._settings.learn == "on"
        judgement = await self._catalog.tool_judgement(await self._catalog.fast())
        if judgement is None:
            raise Unreachable("it is not known yet whether the model can be trusted with memories")
        return judgement

    async def schedule_check(self, room: str = "") -> None:
        """See what is due in a room, or in all, as soon as nobody waits. Raises StorageError."""
        await self._jobs.add(TEND, {"room": room}, priority=_PRIORITY)

    async def on_cleared(self, conversation: str, room: str) -> None:
        """See, soon, what is to be made again of a room that others have been in too. Raises
        StorageError."""
        if room != conversation:
            await self.schedule_check(room)

    async def _tend_rooms(self, job: Job) -> None:
        for room in (
            [job.payload["room"]] if job.payload.get("room") else await self.rooms.room_names()
        ):
            await self.schedule_due(room)

    async def schedule_due(self, room: str) -> None:
        """Add the jobs that are due in a room; each is added once. Raises StorageError, and
        Unreachable while it is not known whether the model is to be asked."""
        if await self.learns():
            watermarks = await self.rooms.progress(room)
            sizes = await self.rooms.sizes(
                room, min(watermarks.folded, watermarks.told, watermarks.studied)
            )
            for each in pending_jobs(watermarks, sizes, bool(await self.rooms.gaps(room))):
                await self._add(room, each)
        notes = await self.memories.newest(room, MemoryKind.NOTE, -1)
        if len(notes) >= MOST_NOTES:
            await self._add(room, PendingJob(JobKind.CONDENSE, 0, str(notes[0].id)))
        if self._embeds and (missing := await self._vectors.missing(room, 1)):
            await self._add(room, PendingJob(JobKind.EMBED, 0, str(missing[0][0])))

    def _going_on(self, work: Handler) -> Handler:
        """A job that looks in the end whether more has come meanwhile."""

        async def run_and_reschedule(job: Job) -> None:
            await work(job)
            await self.schedule_due(job.payload["room"])

        return run_and_reschedule

    async def compact(self, room: str, through: int) -> None:
        """Bring the summary of a room up to a turn, soon. Raises StorageError."""
        watermarks = await self.rooms.progress(room)
        mark = f"{watermarks.version}.{watermarks.folded}-{through}"
        await self._add(room, PendingJob(JobKind.FOLD, through, mark))

    async def _add(self, room: str, wanted: PendingJob) -> None:
        """Add a job: of one room a single one runs at a time."""
        await self._jobs.add(
            wanted.work,
            {"room": room, "through": wanted.through},
            key=f"{wanted.work}/{room}/{wanted.mark}",
            lane=f"memory/{room}",
            priority=_PRIORITY,
        )

    async def search(self, room: str, text: str, limit: int) -> list[Memory]:
        """The memories of a room that fit a text best. Raises StorageError."""
        return await self._finding.search(room, text, limit, self._clock.now())

    def now(self) -> datetime:
        """The time."""
        return self._clock.now()


class RoomMemory:
    """One room of a tendril's memory, for one person: there is no way from here to another one."""

    def __init__(self, memory: TendrilMemory, room: str, conversation: str, person: str) -> None:
        self._memory = memory
        self.room = room
        self.person = person
        self._conversation = conversation

    def tools(self, keeps: bool) -> tuple[MemoryTools, ...]:
        """The tools for the person, unless nothing of theirs is kept."""
        tools = MemoryTools(self._memory, self.room, self._conversation, self.person)
        return (tools,) if keeps else ()

    def personal(self) -> PersonalMemory:
        """Return what is remembered of the person, for them to keep, see and remove."""
        memory = self._memory
        return PersonalMemory(
            memory.memories, memory.now, self.room, self._conversation, self.person
        )

    async def sections(self, question: str) -> Sections:
        """What a prompt shows; nothing when it cannot be read."""
        memories, rooms, now = self._memory.memories, self._memory.rooms, self._memory.now()
        try:
            return await sections_for_prompt(self.room, self.person, question, memories, rooms, now)
        except StorageError as error:
            _log.error("memory.not_read", error=str(error))
            return (), ()

    async def after_turn(self) -> None:
        """See what there is to do now that a turn was kept. Raises StorageError."""
        try:
            await self._memory.schedule_due(self.room)
        except Unreachable:
            await self._memory.schedule_check(self.room)


Sections = tuple[tuple[PromptSection, ...], tuple[PromptSection, ...]]
"""Those for the stable part of a prompt, and those beside the question."""
