"""When there is something to make of a room's turns: plain rules over counts and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from storage.memory.consolidation_state import Watermarks

MOST_UNFOLDED = 40  # turns of a room; with more, all but the last
KEPT_UNFOLDED = 30  # go into the summary
SESSION = 3  # exchanges that make an episode
STUDIED = 5  # exchanges that are looked at for facts at once
MOST_NOTES = 30  # with so many, the oldest
CONDENSED = 20  # become an episode

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
    """Something to do with the turns up to `through`; `mark` is where it begins."""

    work: JobKind
    through: int
    mark: str


def pending_jobs(
    watermarks: Watermarks, sizes: Sequence[tuple[int, int]], gaps: bool
) -> list[PendingJob]:
    """What there is to do, given the ids and sizes of the turns after the first of the marks."""
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
    # After something was forgotten the same turns may be gone through anew.
    return PendingJob(work, through, f"{watermarks.version}.{mark}")


def _fold_through(unfolded: Sequence[tuple[int, int]]) -> int:
    """The last turn that is to be folded, 0 for none."""
    folded = len(unfolded) - KEPT_UNFOLDED if len(unfolded) > MOST_UNFOLDED else 0
    if sum(size for _, size in unfolded) > _MOST_TOKENS * _CHARACTERS:
        folded = max(folded, len(unfolded) - _fitting(unfolded))
    return unfolded[folded - 1][0] if folded else 0


def _fitting(unfolded: Sequence[tuple[int, int]]) -> int:
    """How many of the newest turns fit into half of what may be unfolded; one always does."""
    left, count = _MOST_TOKENS // 2 * _CHARACTERS, 0
    for _, size in reversed(unfolded):
        left -= size
        if left < 0:
            break
        count += 1
    return max(1, count)
