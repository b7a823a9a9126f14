"""The stores and clients of a tendril's memory, the search in it, and the scheduling of its jobs.

Plain rules over counts and sizes decide when a room's turns become memories.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from typing import Self

import structlog

from llm.client.client import AgentClient, ModelCatalog, RequestOptions
from llm.memory.settings import MemorySettings
from llm.messages.errors import ModelError, Unreachable
from storage.db.database import Database
from storage.memory.consolidation_state import ConsolidationStore, Watermarks
from storage.memory.deletion import SCHEDULE_CONSOLIDATION
from storage.memory.memories import Memories, Memory
from storage.memory.vectors import MemoryVectors
from storage.queues.jobs import Job, Jobs
from terrarium.clock import Clock
from terrarium.config import Config

_MAX_CANDIDATES = 50  # candidates from the full-text search
_MIN_SIMILARITY = 0.8  # the similarity below which a memory has nothing to do with the question
# The half-life of the bonus for recent memories, which count up to twice as much as old ones.
_RECENCY_HALF_LIFE = timedelta(days=30)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MemoryServices:
    """The stores of one tendril's memory, the search in them, and the client for its model.

    `embeds`: memories get embedding vectors.
    """

    tendril: str
    settings: MemorySettings
    embeds: bool
    client: AgentClient
    catalog: ModelCatalog
    clock: Clock
    jobs: Jobs
    memories: Memories
    rooms: ConsolidationStore
    vectors: MemoryVectors

    @classmethod
    def open(
        cls,
        tendril: str,
        database: Database,
        jobs: Jobs,
        client: AgentClient,
        catalog: ModelCatalog,
        clock: Clock,
        config: Config,
    ) -> Self:
        """Create the stores over a tendril's `database`."""
        settings = config.section(MemorySettings)
        return cls(
            tendril,
            settings,
            settings.semantic,
            client,
            catalog,
            clock,
            jobs,
            Memories(database),
            ConsolidationStore(database),
            MemoryVectors(database),
        )

    @property
    def session(self) -> str:
        """The session name of memory requests at the agent server."""
        return f"{self.tendril}/memory"

    def now(self) -> datetime:
        """Return the current time."""
        return self.clock.now()

    async def learns(self) -> bool:
        """Return whether the model is used to make memories of what was said.

        Raises Unreachable while it is unknown whether the model is good enough: a bad memory is
        permanent, so the job is rather retried later.
        """
        if self.settings.learn != "auto":
            return self.settings.learn == "on"
        judgement = await self.catalog.tool_judgement(await self.catalog.fast())
        if judgement is None:
            raise Unreachable("it is not known yet whether the model can be trusted with memories")
        return judgement

    async def search(self, room: str, text: str, limit: int) -> list[Memory]:
        """Return the `limit` best matches among a room's memories, by words and by vectors, best
        first. Raises StorageError."""
        by_words = await self.memories.search(room, text, _MAX_CANDIDATES)
        near = await self._near(room, text)
        found = {memory.id: memory for memory in await self.memories.get_many(room, near)}
        scores = dict(near)
        for memory, score in by_words:
            found[memory.id] = memory
            # The full-text score is unbounded; map it to 0..1, comparable with a similarity.
            scores[memory.id] = max(scores.get(memory.id, 0.0), score / (1 + score))

        now = self.now()

        def worth(memory: Memory) -> tuple[float, int]:
            age = max(timedelta(), now - memory.time) / _RECENCY_HALF_LIFE
            return scores[memory.id] * (0.5 + 0.5 * math.pow(0.5, age)), memory.id

        return sorted(found.values(), key=worth, reverse=True)[:limit]

    async def _near(self, room: str, text: str) -> Mapping[int, float]:
        """Return the similarity of memories in meaning, by id; empty without vectors."""
        if not await self.vectors.any(room):
            return {}
        try:
            options = RequestOptions(self.session)
            model, vectors = await self.client.embed([text], options, query=True)
        except ModelError as error:
            _log.warning("memory.not_compared", reason=type(error).__name__)
            return {}
        likeness = await self.vectors.likeness(room, model, vectors[0])
        return {memory: score for memory, score in likeness.items() if score >= _MIN_SIMILARITY}


# Above 40 turns that are not summarised, all but the newest 30 go into the summary.
MAX_UNSUMMARISED = 40
KEPT_UNSUMMARISED = 30

EPISODE_TURNS = 3  # exchanges that make an episode
FACT_BATCH_TURNS = 5  # exchanges that are searched for facts at once

# From 30 notes on, the oldest 20 become an episode.
MAX_NOTES = 30
MERGED_NOTES = 20

_JOB_PRIORITY = 200  # of the jobs: after all others

# The most tokens of turns outside the summary; beyond, only the newest half as many stay outside.
_MAX_UNSUMMARISED_TOKENS = 8_000
_CHARACTERS_PER_TOKEN = 4  # per token, roughly


class JobKind(StrEnum):
    """The kinds of memory jobs; the values are stored."""

    SUMMARISE = "memory.fold"
    RECORD_EPISODES = "memory.tell"
    EXTRACT_FACTS = "memory.study"
    MERGE_NOTES = "memory.condense"
    EMBED = "memory.embed"


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job for the turns up to `through`. `mark` says where it starts; it is part of the job's
    idempotency key."""

    work: JobKind
    through: int
    mark: str


class MemoryScheduler:
    """Schedules the jobs that are due in a room. All methods raise StorageError."""

    def __init__(self, services: MemoryServices) -> None:
        self._services = services

    async def schedule_check(self, room: str = "") -> None:
        """Add a job that checks a room, or all rooms, for due jobs."""
        await self._services.jobs.add(
            SCHEDULE_CONSOLIDATION, {"room": room}, priority=_JOB_PRIORITY
        )

    async def tend(self, job: Job) -> None:
        """Run the job that checks rooms for due jobs."""
        room = job.payload.get("room")
        for each in [room] if room else await self._services.rooms.room_names():
            await self.schedule_due(each)

    async def schedule_due(self, room: str) -> None:
        """Add the jobs that are due in a room, each at most once.

        Also raises Unreachable, while it is unknown whether the model may be used.
        """
        services = self._services
        learns = await services.learns()
        backlog = await services.rooms.backlog(room, MAX_NOTES)
        if learns:
            watermarks = backlog.watermarks or await services.rooms.progress(room)
            for each in pending_jobs(watermarks, backlog.sizes, backlog.has_gaps):
                await self._add(room, each)
        if len(backlog.notes) >= MAX_NOTES:
            await self._add(room, PendingJob(JobKind.MERGE_NOTES, 0, str(backlog.notes[0])))
        if services.embeds and (missing := await services.vectors.missing(room, 1)):
            await self._add(room, PendingJob(JobKind.EMBED, 0, str(missing[0][0])))

    async def schedule_summary(self, room: str, through: int) -> None:
        """Add the job that extends the summary of a room up to a turn."""
        watermarks = await self._services.rooms.progress(room)
        mark = f"{watermarks.version}.{watermarks.summary}-{through}"
        await self._add(room, PendingJob(JobKind.SUMMARISE, through, mark))

    async def _add(self, room: str, wanted: PendingJob) -> None:
        """Add a job unless there is one with its key; its lane lets one job of a room run at a
        time."""
        await self._services.jobs.add(
            wanted.work,
            {"room": room, "through": wanted.through},
            key=f"{wanted.work}/{room}/{wanted.mark}",
            lane=f"memory/{room}",
            priority=_JOB_PRIORITY,
        )


def pending_jobs(
    watermarks: Watermarks, sizes: Sequence[tuple[int, int]], gaps: bool
) -> list[PendingJob]:
    """Return the jobs that are due, given the ids and sizes (in characters) of the turns after the
    watermarks, oldest first."""
    found = []
    target = max(
        _summary_target([each for each in sizes if each[0] > watermarks.summary]), watermarks.wanted
    )
    if target > watermarks.summary:
        found.append(_due(watermarks, JobKind.SUMMARISE, target, watermarks.summary))
    # Episodes and facts are made of whole groups of turns; the rest waits for more.
    without_episode = [turn for turn, _ in sizes if turn > watermarks.episodes]
    if len(without_episode) >= EPISODE_TURNS:
        through = without_episode[len(without_episode) // EPISODE_TURNS * EPISODE_TURNS - 1]
        found.append(_due(watermarks, JobKind.RECORD_EPISODES, through, watermarks.episodes))
    elif gaps:
        found.append(PendingJob(JobKind.RECORD_EPISODES, 0, f"{watermarks.version}.gaps"))
    unsearched = [turn for turn, _ in sizes if turn > watermarks.facts]
    if len(unsearched) >= FACT_BATCH_TURNS:
        through = unsearched[len(unsearched) // FACT_BATCH_TURNS * FACT_BATCH_TURNS - 1]
        found.append(_due(watermarks, JobKind.EXTRACT_FACTS, through, watermarks.facts))
    return found


def _due(watermarks: Watermarks, work: JobKind, through: int, mark: int) -> PendingJob:
    # The version changes when something is forgotten: then the same turns are processed again.
    return PendingJob(work, through, f"{watermarks.version}.{mark}")


def _summary_target(unsummarised: Sequence[tuple[int, int]]) -> int:
    """Return the id of the last turn to go into the summary, 0 for none."""
    count, most = len(unsummarised), _MAX_UNSUMMARISED_TOKENS * _CHARACTERS_PER_TOKEN
    summarised = count - KEPT_UNSUMMARISED if count > MAX_UNSUMMARISED else 0
    sizes = list(accumulate(size for _, size in reversed(unsummarised)))
    if sizes and sizes[-1] > most:
        fitting = sum(size <= most // 2 for size in sizes)
        summarised = max(summarised, count - max(1, fitting))
    return unsummarised[summarised - 1][0] if summarised else 0
