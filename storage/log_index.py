"""Tables derived from the events of the log: the full-text index and the counters.

This module works on rows of the table `events`, not on `Event` objects, so that a copy of a store
(`storage.transfer`) can fill the derived tables.

The index is partitioned by id: a partition is 2^33 milliseconds of ids, about a hundred days. New
lines go into the newest partition, a search reads from there backwards, and a partition without
lines is dropped whole. Measured at ten million rows, partitions keep rare words and prefixes fast
where one big index does not. Besides its words a line has tags, tokens for its channel, nick and
type, so that a filter costs no more than another word.

The counters are totals by channel, hour, weekday and person, for `storage.chat_log.statistics`.
The channel id `EVERYWHERE` stands for all public channels together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import add
from typing import Any

from storage.connection import Connection, Dialect, adding
from storage.text_index.fts5 import Fts5Index
from storage.text_index.model import IndexedLine
from storage.text_index.tsvector import TsvectorIndex

_FTS5, _TSVECTOR = Fts5Index(), TsvectorIndex()


def text_index(connection: Connection) -> Fts5Index | TsvectorIndex:
    """Return the full-text index of the database behind a connection."""
    return _FTS5 if connection.dialect is Dialect.SQLITE else _TSVECTOR


SPOKEN_TYPES = frozenset({"PRIVMSG", "NOTICE", "ACTION"})
"""The event types that are indexed and counted: what somebody said."""
EVERYWHERE = 0  # channel id of the totals over all public channels
PARTITION_BITS = 33  # low bits of an id, its offset within the partition: 2^33 ms are 99 days
# CASE, because the larger of two values is max() in SQLite and greatest() in PostgreSQL.
_ADD_LINES = """
INSERT INTO partitions VALUES (?, ?, 0, ?) ON CONFLICT (number) DO UPDATE
SET lines = partitions.lines + excluded.lines, drift =
CASE WHEN excluded.drift > partitions.drift THEN excluded.drift ELSE partitions.drift END"""
# `removed` counts lines whose words the pages of the index may still hold, until a merge is done.
_SUBTRACT_LINES = (
    "UPDATE partitions SET lines = lines - ?1, removed = removed + ?1 WHERE number = ?2"
)

_HOUR = 3_600_000_000  # microseconds
_MONDAY = 72  # hours from Monday 0:00 to the Unix epoch, which began on a Thursday
# The primary key and the counts of each table, in the order of its columns.
_COUNTERS = {
    "totals": (("channel_id",), ("events", "lines", "own", "replies")),
    "hours": (("channel_id", "hour"), ("lines", "own", "replies")),
    "week": (("channel_id", "slot"), ("lines",)),
    "people": (("channel_id", "nick", "own"), ("lines",)),
    "people_days": (("nick", "channel_id", "day", "own"), ("lines", "replies")),
}
_ADD_COUNTS = {
    table: f"INSERT INTO {table} VALUES ({', '.join('?' * len([*key, *amounts]))})"
    f" {adding(table, key, amounts)}"
    for table, (key, amounts) in _COUNTERS.items()
}
DERIVED_TABLES = frozenset({"partitions", *_COUNTERS})
"""The tables that `add_events` fills, besides the index itself."""

_Counts = dict[str, dict[tuple[Any, ...], Sequence[int]]]
"""Increments of the counters: by table and primary key, what to add to the other columns."""


def fold_name(name: str) -> str:
    """Return a name as tables compare it: only ASCII letters are folded, as by SQLite's NOCASE."""
    if name.isascii():
        return name.lower()
    return "".join(char.lower() if char.isascii() else char for char in name)


def channel_tag(channel_id: int) -> str:
    """Return the index token of a channel."""
    return f"zc{channel_id}"


@lru_cache(4096)
def nick_tag(nick: str) -> str:
    """Return the index token of a nick, the same for every spelling in upper and lower case."""
    # In hex the tokenizer keeps any nick as one token, brackets and diacritics included.
    return f"zn{fold_name(nick).encode('utf-8', 'replace').hex()}"


def type_tag(kind: str) -> str:
    """Return the index token of an event type; lines of the most frequent, PRIVMSG, have none."""
    return f"zy{kind.lower()}"


OWN_TAG = "zo"
"""The index token of our own lines."""


def add_events(
    connection: Connection, rows: Sequence[Sequence[Any]], private: Collection[int], drift: int
) -> None:
    """Index and count rows of `events`, in the transaction that stores them. The ids of `private`
    channels are left out of the public totals; `drift` is the largest lead, in milliseconds, of an
    id of these rows over its event's time."""
    for number, lines in by_partition(rows):
        connection.execute(_ADD_LINES, [number, len(lines), drift])
        if lines:
            text_index(connection).add(connection, number, lines)
    _add_counts(connection, _count_rows(rows, private), 1)


def remove_events(
    connection: Connection, rows: Sequence[Sequence[Any]], private: Collection[int]
) -> None:
    """Undo `add_events` of the same rows.
    Their words stay in index pages that no query reads, until a merge has rewritten these."""
    for number, lines in by_partition(rows):
        if lines:
            text_index(connection).remove(connection, number, lines)
            connection.execute(_SUBTRACT_LINES, [len(lines), number])
    counts = _count_rows(rows, private)
    _add_counts(connection, counts, -1)
    for table in ("hours", "people", "people_days"):  # a row without lines would name a person
        where = " AND ".join(f"{column} = ?" for column in _COUNTERS[table][0])
        connection.executemany(f"DELETE FROM {table} WHERE {where} AND lines <= 0", counts[table])


def by_partition(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[int, list[IndexedLine]]]:
    """Yield each partition number with the index entries of its rows (of speech), in id order."""
    ordered = sorted(rows, key=lambda row: int(row[0]))
    for number, group in groupby(ordered, key=lambda row: row[0] >> PARTITION_BITS):
        lines: list[IndexedLine] = []
        for event_id, channel_id, kind, _, nick, *_, text, _, own, _ in group:
            if kind in SPOKEN_TYPES:
                tags = [channel_tag(channel_id), nick_tag(nick)]
                tags += [type_tag(kind)] * (kind != "PRIVMSG") + [OWN_TAG] * bool(own)
                lines.append((event_id, text, " ".join(tags)))
        yield number, lines


def _add_counts(connection: Connection, counts: _Counts, sign: int) -> None:
    for table, counted in counts.items():
        rows = [(*key, *(sign * count for count in found)) for key, found in counted.items()]
        connection.executemany(_ADD_COUNTS[table], sorted(rows))  # adjacent keys share a page


def _count_rows(rows: Sequence[Sequence[Any]], private: Collection[int]) -> _Counts:
    events = Counter(channel_id for _, channel_id, *_ in rows)
    spoken = Counter(
        (channel_id, nick, time // _HOUR, own, reply_to is not None)
        for _, channel_id, kind, time, nick, *_, own, reply_to in rows
        if kind in SPOKEN_TYPES
    )
    counts: _Counts = {table: {} for table in _COUNTERS}
    for channel_id, count in events.items():
        for place in _places(channel_id, private):
            _count(counts["totals"], (place,), (count, 0, 0, 0))
    for (channel_id, nick, hour, is_own, is_reply), count in spoken.items():
        own = int(is_own)
        owned = own * count
        replied = owned if is_reply else 0
        for place in _places(channel_id, private):
            _count(counts["totals"], (place,), (0, count, owned, replied))
            _count(counts["hours"], (place, hour), (count, owned, replied))
            _count(counts["week"], (place, (hour + _MONDAY) % 168), (count,))
            _count(counts["people"], (place, nick, own), (count,))
        # Not for EVERYWHERE: statistics of people always sum over the channels in scope.
        _count(counts["people_days"], (nick, channel_id, hour // 24, own), (count, replied))
    return counts


def _places(channel_id: int, private: Collection[int]) -> tuple[int, ...]:
    return (channel_id,) if channel_id in private else (channel_id, EVERYWHERE)


def _count(
    sums: dict[tuple[Any, ...], Sequence[int]], key: tuple[Any, ...], added: Sequence[int]
) -> None:
    known = sums.get(key)
    sums[key] = added if known is None else [*map(add, known, added)]
