"""The scan of the index for matching lines, newest first, within a time limit.

The index is read in pieces, which grow while they are fast and shrink when they are slow, so that
the clock can be checked between them. At least `_MIN_LINES_READ` lines are always read, so that a
small log is searched whole, however slow the machine.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from storage.chat_log.event_table import id_range, rows_of
from storage.connection import GIVEN, Dialect
from storage.db.database import Connection, Row, from_micros
from storage.log_index import PARTITION_BITS
from storage.search.planner import ClausePlan, LineConditions
from storage.text_index.model import IdRange

LAST_ID = (1 << 53) - 1  # the greatest integer that JavaScript counts to exactly
_MAX_WALL_TIME = 2.0  # seconds of wall-clock time: waiting for a slow disk takes none of the CPU's
_MIN_LINES_READ = 20_000  # lines that are read in any case, about
_IDS_PER_READ = 400  # ids that are read at once when a window is read again
_IDS_PER_COUNT = 1_000  # ids that are counted at once
_DAY = 86_400_000_000  # microseconds
_COUNT = f"""
SELECT channel_id, nick, time / {_DAY}, count(*) FROM events WHERE id IN {GIVEN}
GROUP BY 1, 2, 3"""
_PARTITIONS = """
SELECT number, lines, (SELECT max(id) FROM events) FROM partitions WHERE lines > 0
ORDER BY number DESC"""


LineCounts = Counter[tuple[int, str, date]]
"""Numbers of lines by channel id, nick and day in UTC."""


@dataclass(frozen=True, slots=True)
class _Pace:
    """The time limits of a scan, in seconds by `clock`, and the sizes of its pieces.

    Reading a window may take `budget`, counting all hits another `counting_budget`. The first piece
    has about `first` lines. A piece that took less than `quick` makes the next one wider, so
    that this takes about `slow`: at least four times, at most `most_growth` times. One that took
    more than `slow` makes the next one half as wide. A piece may span partitions.
    """

    clock: Callable[[], float]
    budget: float
    counting_budget: float
    quick: float
    slow: float
    first: int
    most_growth: int


_PACES = {
    # SQLite works in our thread, so the thread's CPU time tells: a busy machine makes no result
    # partial. The work of PostgreSQL can only be measured from outside.
    Dialect.SQLITE: _Pace(time.thread_time, 0.05, 0.03, 0.001, 0.004, 10_000, 4),
    Dialect.POSTGRES: _Pace(time.monotonic, 0.15, 0.09, 0.004, 0.012, 100_000, 64),
}


@dataclass(frozen=True, slots=True)
class ResultWindow:
    """Matching lines, newest first. All ids down to `bottom` have been examined. `more` tells that
    there may be matches below it, `timed_out` that the time limit ended the scan there."""

    rows: Sequence[Row]
    bottom: int
    more: bool
    timed_out: bool


@dataclass(frozen=True, slots=True)
class _Batch:
    """The candidate ids of one piece, complete down to `bottom`. `looked_at` is about the number of
    lines that the scan has read so far."""

    ids: Sequence[int]
    bottom: int
    looked_at: float


class ResultScanner:
    """Reads windows of matching lines for one search on one connection."""

    def __init__(
        self, connection: Connection, conditions: LineConditions, plans: Sequence[ClausePlan]
    ) -> None:
        self._connection = connection
        self._conditions = conditions
        self._plans = plans
        self._scans_partition = any(plan.scans_partition for plan in plans)
        self._pace = _PACES[connection.dialect]
        rows = connection.execute(_PARTITIONS).fetchall()
        self._partitions: dict[int, int] = {number: lines for number, lines, _ in rows}
        self._newest = rows[0][2] if rows else 0
        # Widths are in ids. The first one has `first` lines if they are spread evenly in the
        # fullest partition.
        lines = max(self._partitions.values(), default=1)
        self._first_width = max(1, (self._pace.first << PARTITION_BITS) // lines)
        first, last = id_range(connection, conditions.query)
        self.first = first or 1
        self._last = self._newest if last is None else min(last, self._newest)
        self._waited = time.monotonic() + _MAX_WALL_TIME

    def read(self, top: int, size: int) -> ResultWindow:
        """Return the newest `size` matching lines with ids up to `top`."""
        rows: list[Row] = []
        end = self._pace.clock() + self._pace.budget
        for piece in self._pieces(self.first, top, size + 1):  # one more, to know if there are more
            rows += self._fitting(piece.ids)
            if len(rows) > size:
                return ResultWindow(rows[:size], rows[size - 1]["id"], more=True, timed_out=False)
            if (
                self._is_over(end)
                and piece.looked_at >= _MIN_LINES_READ
                and piece.bottom > self.first
            ):
                return ResultWindow(rows, piece.bottom, more=True, timed_out=True)
        return ResultWindow(rows, self.first, more=False, timed_out=False)

    def read_again(self, top: int, bottom: int) -> ResultWindow:
        """Return a window that was read before, from `top` to `bottom`, without a time limit."""
        rows = [
            row
            for piece in self._pieces(max(bottom, self.first), top, _IDS_PER_READ)
            for row in self._fitting(piece.ids)
        ]
        return ResultWindow(rows, bottom, more=bottom > self.first, timed_out=False)

    def count(self, top: int, counts: LineCounts) -> bool:
        """Add the matching lines with ids up to `top` to `counts`; False if time was over."""
        exact = all(plan.index_exact for plan in self._plans)
        end = self._pace.clock() + self._pace.counting_budget
        for piece in self._pieces(self.first, top, _IDS_PER_COUNT):
            ids = piece.ids if exact else [row["id"] for row in self._fitting(piece.ids)]
            for channel, nick, day, count in self._connection.execute(_COUNT, [json.dumps(ids)]):
                counts[channel, nick, from_micros(day * _DAY).date()] += count
            # A small log is counted whole, unless each line has to be looked at.
            enough = piece.looked_at >= _MIN_LINES_READ or not exact
            if self._is_over(end) and enough and piece.bottom > self.first:
                return False
        return True

    def _pieces(self, bottom: int, top: int, at_once: int) -> Iterator[_Batch]:
        """Yield the candidates between two ids in pieces of at most `at_once`, newest first."""
        width = self._first_width
        looked_at = 0.0
        end = min(top, self._last)
        while ranges := self._ranges(bottom, end, width):
            began = self._pace.clock()
            ids, reached = self._ids(ranges, at_once)
            for each in ranges:  # an estimate of the lines with ids of `reached` or more
                # Those of the newest partition are spread over a part of it: up to its newest id.
                filled = self._newest - (each.number << PARTITION_BITS) + 1
                read = max(0, each.last - max(each.first, reached) + 1)
                share = read / min(filled, 1 << PARTITION_BITS)
                looked_at += self._partitions[each.number] * share
            yield _Batch(ids, reached, looked_at)
            # This includes the time in which the caller has read the lines of the piece.
            took, pace = self._pace.clock() - began, self._pace
            if took < pace.quick:
                # A coarse clock may not have moved at all.
                growth = min(max(4, int(pace.slow / max(took, 1e-6))), pace.most_growth)
                width = min(width * growth, LAST_ID)
            elif took > pace.slow:
                width = max(width >> 1, 1 << 20)
            end = reached - 1

    def _ranges(self, bottom: int, end: int, width: int) -> Sequence[IdRange]:
        """Return the ranges, with `width` ids, of the piece that ends at `end`, newest first."""
        ranges: list[IdRange] = []
        for number in self._partitions:
            begin = max(bottom, number << PARTITION_BITS)
            last = min(end, ((number + 1) << PARTITION_BITS) - 1)
            if begin > last:
                continue
            # FTS5 reads the entries of all words with a prefix, however narrow the range of ids is.
            first = begin if self._scans_partition else max(begin, last - width + 1)
            ranges.append(IdRange(number, first, last))
            width -= last - first + 1
            if width <= 0:
                break
        return ranges

    def _ids(self, ranges: Sequence[IdRange], limit: int) -> tuple[Sequence[int], int]:
        """Return the candidates of a piece for any plan, and down to which id they are complete."""
        reached = ranges[-1].first
        lists = []
        for plan in self._plans:
            ids = plan.ids(self._connection, ranges, limit)
            if len(ids) == limit:  # below its last id a full list is incomplete
                reached = max(reached, ids[-1])
            lists.append(ids)
        if len(lists) == 1:
            return lists[0], reached
        # The union is complete only as far as each list is; the next piece reads the rest again.
        together = sorted({each for ids in lists for each in ids}, reverse=True)
        return [each for each in together if each >= reached], reached

    def _fitting(self, ids: Sequence[int]) -> list[Row]:
        """Return the rows of those candidates that pass all checks, newest first."""
        if not ids:
            return []
        return [
            row
            for row in rows_of(self._connection, ids)
            if self._conditions.fits(row) and any(plan.fits(row["text"]) for plan in self._plans)
        ]

    def _is_over(self, end: float) -> bool:
        return self._pace.clock() > end or time.monotonic() > self._waited
