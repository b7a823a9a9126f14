"""Decides when a room's turns become memories, by plain rules over counts and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from llm.memory.services import MemoryServices
from storage.memory.consolidation_state import Watermarks
from storage.memory.deletion import TEND
from storage.memory.memories import MemoryKind
from storage.queues.jobs import Job

# Above 40 turns that are not summarised, all but the newest 30 go into the summary.
MOST_UNFOLDED = 40
KEPT_UNFOLDED = 30

SESSION = 3  # exchanges that make an episode
STUDIED = 5  # exchanges that are searched for facts at once

# From 30 notes on, the oldest 20 become an episode.
MOST_NOTES = 30
CONDENSED = 20

_PRIORITY = 200  # of the jobs: behind all others

_MOST_TOKENS = 8_000  # of unfolded turns; of more, the newest half of that stays
_CHARACTERS = 4  # of a token, about


class JobKind(StrEnum):
    """The kinds of jobs."""

    FOLD = "memory.fold"
    TELL = "memory.tell"
    STUDY = "memory.study"
    CONDENSE = "memory.condense"
    EMBED = "memory.embed"


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job for the turns up to `through`; `mark` tells where it begins."""

    work: JobKind
    through: int
    mark: str


class MemoryScheduler:
    """Adds the jobs that are due in a room. All methods raise StorageError."""

    def __init__(self, services: MemoryServices) -> None:
        self._services = services

    async def schedule_check(self, room: str = "") -> None:
        """Add a job that looks for due jobs in a room, or in all."""
        await self._services.jobs.add(TEND, {"room": room}, priority=_PRIORITY)

    async def tend(self, job: Job) -> None:
        """Run such a job."""
        room = job.payload.get("room")
        for each in [room] if room else await self._services.rooms.room_names():
            await self.schedule_due(each)

    async def schedule_due(self, room: str) -> None:
        """Add the jobs that are due in a room, each once.

        Raises Unreachable too, while it is unknown if the model is to be asked.
        """
        services = self._services
        if await services.learns():
            watermarks = await services.rooms.progress(room)
            start = min(watermarks.folded, watermarks.told, watermarks.studied)
            sizes = await services.rooms.sizes(room, start)
            for each in pending_jobs(watermarks, sizes, bool(await services.rooms.gaps(room))):
                await self._add(room, each)
        notes = await services.memories.newest(room, MemoryKind.NOTE)
        if len(notes) >= MOST_NOTES:
            await self._add(room, PendingJob(JobKind.CONDENSE, 0, str(notes[0].id)))
        if services.embeds and (missing := await services.vectors.missing(room, 1)):
            await self._add(room, PendingJob(JobKind.EMBED, 0, str(missing[0][0])))

    async def schedule_summary(self, room: str, through: int) -> None:
        """Add the job that brings the summary of a room up to a turn."""
        watermarks = await self._services.rooms.progress(room)
        mark = f"{watermarks.version}.{watermarks.folded}-{through}"
        await self._add(room, PendingJob(JobKind.FOLD, through, mark))

    async def _add(self, room: str, wanted: PendingJob) -> None:
        """Add a job; its lane lets one job of a room run at a time."""
        await self._services.jobs.add(
            wanted.work,
            {"room": room, "through": wanted.through},
            key=f"{wanted.work}/{room}/{wanted.mark}",
            lane=f"memory/{room}",
            priority=_PRIORITY,
        )


def pending_jobs(
    watermarks: Watermarks, sizes: Sequence[tuple[int, int]], gaps: bool
) -> list[PendingJob]:
    """Return the jobs that are due, by the ids and sizes of the turns after the watermarks."""
    found = []
    fold = max(
        _fold_through([each for each in sizes if each[0] > watermarks.folded]), watermarks.wanted
    )
    if fold > watermarks.folded:
        found.append(_due(watermarks, JobKind.FOLD, fold, watermarks.folded))
    untold = [turn for turn, _ in sizes if turn > watermarks.told]
    if len(untold) >= SESSION:
        through = untold[len(untold) // SESSION * SESSION - 1]
        found.append(_due(watermarks, JobKind.TELL, through, watermarks.told))
    elif gaps:
        found.append(PendingJob(JobKind.TELL, 0, f"{watermarks.version}.gaps"))
    unstudied = [turn for turn, _ in sizes if turn > watermarks.studied]
    if len(unstudied) >= STUDIED:
        through = unstudied[len(unstudied) // STUDIED * STUDIED - 1]
        found.append(_due(watermarks, JobKind.STUDY, through, watermarks.studied))
    return found


def _due(watermarks: Watermarks, work: JobKind, through: int, mark: int) -> PendingJob:
    # The version changes when something is forgotten: then the same turns are processed again.
    return PendingJob(work, through, f"{watermarks.version}.{mark}")


def _fold_through(unfolded: Sequence[tuple[int, int]]) -> int:
    """Return the last turn that goes into the summary, 0 for none."""
    folded = len(unfolded) - KEPT_UNFOLDED if len(unfolded) > MOST_UNFOLDED else 0
    if sum(size for _, size in unfolded) > _MOST_TOKENS * _CHARACTERS:
        folded = max(folded, len(unfolded) - _fitting(unfolded))
    return unfolded[folded - 1][0] if folded else 0


def _fitting(unfolded: Sequence[tuple[int, int]]) -> int:
    """Count the newest turns that fit into half of the limit; one always does."""
    left, count = _MOST_TOKENS // 2 * _CHARACTERS, 0
    for _, size in reversed(unfolded):
        left -= size
        if left < 0:
            break
        count += 1
    return max(1, count)
