"""What is counted as it is written, so that no page of statistics reads the log itself.

The channel 0 stands for all public channels together. `storage.chat_log.statistics` reads the
tables.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from storage.chat_log.event import SPOKEN

EVERYWHERE = 0
_HOUR = 3_600_000_000  # microseconds
_MONDAY = 72  # hours from the Monday before 1970 began to its first moment, a Thursday
_SQL = {
    "totals": """
INSERT INTO totals VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
events = events + excluded.events, lines = lines + excluded.lines,
own = own + excluded.own, replies = replies + excluded.replies""",
    "hours": """
INSERT INTO hours VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
lines = lines + excluded.lines, own = own + excluded.own, replies = replies + excluded.replies""",
    "week": """
INSERT INTO week VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET lines = lines + excluded.lines""",
    "people": """
INSERT INTO people VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET lines = lines + excluded.lines""",
    "people_days": """
INSERT INTO people_days VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
lines = lines + excluded.lines, replies = replies + excluded.replies""",
}
_FORGOTTEN = (
    "DELETE FROM hours WHERE channel_id = ? AND hour = ? AND lines <= 0",
    "DELETE FROM people WHERE channel_id = ? AND nick = ? AND lines <= 0",
    "DELETE FROM people_days WHERE nick = ? AND channel_id = ? AND day = ? AND lines <= 0",
)

Counts = dict[str, dict[tuple[Any, ...], Sequence[int]]]


def add(
    connection: sqlite3.Connection, rows: Iterable[Sequence[Any]], private: Collection[int]
) -> None:
    """Count rows of `events`; those of the channels `private` are not counted as public."""
    _write(connection, _count_rows(rows, private), 1)


def decrement(
    connection: sqlite3.Connection, rows: Iterable[Sequence[Any]], private: Collection[int]
) -> None:
    """Count rows of `events` no longer; of a person without a line no row stays."""
    counts = _count_rows(rows, private)
    _write(connection, counts, -1)
    keys: Sequence[set[tuple[Any, ...]]] = (
        set(counts["hours"]),
        {key[:2] for key in counts["people"]},
        {key[:3] for key in counts["people_days"]},
    )
    for sql, emptied in zip(_FORGOTTEN, keys, strict=True):
        connection.executemany(sql, emptied)


def _write(connection: sqlite3.Connection, counts: Counts, sign: int) -> None:
    for table, counted in counts.items():
        rows = [(*key, *(sign * count for count in found)) for key, found in counted.items()]
        connection.executemany(_SQL[table], sorted(rows))  # neighbours share a page


def _count_rows(rows: Iterable[Sequence[Any]], private: Collection[int]) -> Counts:
    """What to add to which row of which table."""
    events: Counter[int] = Counter()
    spoken: Counter[tuple[int, str, int, int, int]] = Counter()
    for row in rows:
        channel_id = row[1]
        events[channel_id] += 1
        if row[2] in SPOKEN:
            own = int(row[11])
            reply = int(own and row[12] is not None)
            spoken[channel_id, row[4], row[3] // _HOUR, own, reply] += 1
    counts: Counts = {table: {} for table in _SQL}
    for channel_id, count in events.items():
        for place in _places(channel_id, private):
            _count(counts, "totals", (place,), count, 0, 0, 0)
    for (channel_id, nick, hour, own, reply), count in spoken.items():
        owned, replied = own * count, reply * count
        for place in _places(channel_id, private):
            _count(counts, "totals", (place,), 0, count, owned, replied)
            _count(counts, "hours", (place, hour), count, owned, replied)
            _count(counts, "week", (place, (hour + _MONDAY) % 168), count)
            _count(counts, "people", (place, nick, own), count)
        _count(counts, "people_days", (nick, channel_id, hour // 24, own), count, replied)
    return counts


def _places(channel_id: int, private: Collection[int]) -> tuple[int, ...]:
    return (channel_id,) if channel_id in private else (channel_id, EVERYWHERE)


def _count(counts: Counts, table: str, key: tuple[Any, ...], *found: int) -> None:
    known = counts[table].get(key)
    added = found if known is None else tuple(a + b for a, b in zip(known, found, strict=True))
    counts[table][key] = added
