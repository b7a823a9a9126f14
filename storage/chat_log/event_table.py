"""The table `events`: rows, ids, insertion, queries, and the access control of all reads.

Every read of the log, whether a list, a search, a count or the live end, first asks `channels_in`
for the channels that it may see, and reads no others.

The id of an event is its time in milliseconds since 1970, or the next free number. So one order
serves for reading, for searching newest first and for finding a time, and history that is imported
years later is sorted in. An id is never before its event's time and seldom much after it; the
largest difference is the `drift` of its partition.

Readers that ask for the events after the last id that they saw must not miss any. So an event that
is older than the newest one still gets an id after it, if it is older by at most `MAX_DELAY_MS`, or
by `MAX_CLOCK_LAG_MS` if it is said now (a server's clock may have been set back). Only older
events, which are history, get an id in the past.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from heapq import merge
from itertools import islice
from typing import Any

from storage import log_index
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import CHANNEL_PREFIXES, Event, EventType, Scope, is_private
from storage.connection import GIVEN, Connection, Cursor, Row
from storage.db.database import from_micros, to_micros

MAX_DELAY_MS = 300_000  # milliseconds for which a line may be delayed: a net split, a slow server
# Milliseconds by which the time of a line may lag although it is said now.
MAX_CLOCK_LAG_MS = 86_400_000
KEPT_ARRIVALS = 20_000  # events, at least, whose order of arrival is kept
_TRIM_STEP = 1_000  # older ones are removed so many at once, as each removal writes other pages
_CHANNELS = "SELECT id, network, name, private FROM channels"
_CHANNEL = "INSERT INTO channels (network, name, private) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
# Rounded down to multiples of _TRIM_STEP, so that only every thousandth insertion deletes anything.
_TRIM = "DELETE FROM arrivals WHERE seq < (SELECT (max(seq) - ?1) / ?2 * ?2 FROM arrivals)"
# Ids after a time that are read at once to find a free one; doubled on demand.
_ID_SEARCH_WIDTH = 1_024
_TAKEN_IDS = (
    "SELECT DISTINCT events.id FROM json_each(?) t"
    " JOIN events ON events.id BETWEEN CAST(t.value AS BIGINT) AND CAST(t.value AS BIGINT) + ?"
)
# Lines that were removed meanwhile are left out.
_ADD_QUOTES = f"""
INSERT INTO quotes SELECT a.id, l.id FROM events a JOIN events l ON l.id IN {GIVEN}
WHERE a.id = ? ON CONFLICT DO NOTHING"""
_SOURCES = f"""
SELECT id FROM events WHERE own = 0 AND id IN {GIVEN} UNION
SELECT line_id FROM quotes JOIN events e ON answer_id IN (e.id, e.reply_to)
WHERE own = 1 AND e.id IN {GIVEN}"""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXTS = ("network", "channel", "nick", "user", "host", "account", "target", "msgid", "text")
_MAX_CACHED_EVENTS = 512  # events in the cache: a prompt repeats most lines of the one before
_FIELDS = (  # of an event, in the order of the columns
    *("id", "channel", "type", "time", "nick", "user", "host"),
    *("account", "target", "text", "msgid", "own", "reply_to"),
)
_TYPES = {kind.value: kind for kind in EventType}


def insert(connection: Connection, events: Sequence[Event], *, live: bool = False) -> Sequence[int]:
    """Store events in the transaction of `connection` and return their ids, in the same order.

    An event much older than the newest one is history, and gets an id in the past. Live readers are
    shown all events if `live`, that is, said now, whatever their times; else those that are not
    history.
    """
    events = [storable(event) for event in events]
    names = {(event.network, event.channel) for event in events}
    channels, private = _known_channels(connection)
    new = [name for name in names if (name[0], log_index.fold_name(name[1])) not in channels]
    if new:
        connection.executemany(_CHANNEL, [(*name, is_private(name[1])) for name in new])
        channels, private = _known_channels(connection)
    times = [to_micros(event.time) for event in events]
    late = MAX_CLOCK_LAG_MS if live else MAX_DELAY_MS
    ids, current, drift = allocate_ids(connection, times, late)
    rows = [
        values(event, event_id, channels[event.network, log_index.fold_name(event.channel)], time)
        for event, event_id, time in zip(events, ids, times, strict=True)
    ]
    connection.insert_rows("events", rows)
    log_index.add_events(connection, rows, private, drift)
    arrived = ids if live else current
    connection.insert_rows("arrivals (event_id)", [[each] for each in arrived])
    connection.execute(_TRIM, [KEPT_ARRIVALS, _TRIM_STEP])
    for event, event_id in zip(events, ids, strict=True):
        if event.quotes:
            add_quotes(connection, event_id, event.quotes)
    return ids


def _known_channels(connection: Connection) -> tuple[dict[tuple[str, str], int], set[int]]:
    rows = connection.execute(_CHANNELS).fetchall()
    ids = {(row[1], log_index.fold_name(row[2])): row[0] for row in rows}
    return ids, {row[0] for row in rows if row[3]}


def values(event: Event, event_id: int, channel_id: int, time: int) -> tuple[Any, ...]:
    """Return the column values of a `storable` event, in order; `time` is in microseconds."""
    return (
        *(event_id, channel_id, event.type.value, time, event.nick, event.user, event.host),
        *(event.account, event.target, event.text, event.msgid, event.own, event.reply_to),
    )


def storable(event: Event) -> Event:
    """Return the event with each lone surrogate, which UTF-8 cannot encode, replaced by `?`."""
    texts = {name: text for name in _TEXTS if (text := getattr(event, name))}
    # A single check of all fields together, because almost no event has any.
    together = "".join(texts.values())
    if together.isascii() or not _LONE_SURROGATE.search(together):
        return event
    cleaned: dict[str, Any] = {n: _LONE_SURROGATE.sub("?", text) for n, text in texts.items()}
    return replace(event, **cleaned)


def event_of(row: Row | tuple[Any, ...], channel: Row) -> Event:
    """Return the event of a row of `events` and the row of its channel."""
    return _event_of(tuple(row), channel["network"], channel["name"])


@lru_cache(_MAX_CACHED_EVENTS)
def _event_of(row: tuple[Any, ...], network: str, channel: str) -> Event:
    values = dict(zip(_FIELDS, row, strict=True)) | {"network": network, "channel": channel}
    values |= {"time": from_micros(values["time"]), "own": bool(values["own"])}
    return Event(**values | {"type": _TYPES[values["type"]]})


def allocate_ids(
    connection: Connection, times: Sequence[int], late: int
) -> tuple[list[int], list[int], int]:
    """Return ids for events with these times (in microseconds), in the transaction that stores
    them; those ids that are not of history; and the largest lead of an id over its event's time, in
    milliseconds.

    An event that is more than `late` milliseconds older than the newest one is history.
    """
    newest = int(connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0])
    wanted = [max(1, time // 1000) for time in times]
    ids: list[int] = []
    history: list[int] = []  # positions in the batch of events whose ids go back in time
    for position, begin in enumerate(wanted):
        if begin < newest - late:
            history.append(position)
            ids.append(0)
        else:
            newest = max(begin, newest + 1)
            ids.append(newest)
    # History last: its ids fill gaps in the past, around those given to current events above.
    current = [found for found in ids if found]
    free = _free_ids(connection, [wanted[position] for position in history], set(ids))
    for position, found in zip(history, free, strict=True):
        ids[position] = found
    drift = max((found - begin for found, begin in zip(ids, wanted, strict=True)), default=0)
    return ids, current, drift


def _free_ids(connection: Connection, begins: Sequence[int], taken: set[int]) -> list[int]:
    """Return, for each of `begins`, the first id at or after it that is free: neither in the
    database nor `taken` by the batch, to which it is added."""

    def read_taken(starts: Collection[int], near: int) -> None:
        rows = connection.execute(_TAKEN_IDS, [json.dumps(list(starts)), near])
        taken.update(row[0] for row in rows)

    # One query reads which ids are taken within `near` of every begin. A candidate that leaves its
    # range causes another query, for a range of twice the width, from there on.
    near = _ID_SEARCH_WIDTH
    next_of = {begin: begin for begin in begins}
    known = {begin: begin + near for begin in begins}
    found: list[int] = []
    if begins:
        read_taken(sorted(next_of), near)
    for begin in begins:
        candidate = next_of[begin]
        while candidate in taken or candidate > known[begin]:
            if candidate in taken:
                candidate += 1
            else:
                near *= 2
                known[begin] = candidate + near
                read_taken([candidate], near)
        taken.add(candidate)
        next_of[begin] = candidate + 1
        found.append(candidate)
    return found


MAX_CLOCK_LEAD_MS = 2 * MAX_CLOCK_LAG_MS
"""How far in the future, in milliseconds, an id may be before its time counts as wrong.

Events up to a day ahead are accepted (`MAX_CLOCK_LAG_MS`), and an event that is said up to a day
after one of those still gets an id after it.
"""

# The first character decides too: the column `private` alone is not trusted (see `is_private`).
_PUBLIC = f"c.private = 0 AND substr(c.name, 1, 1) IN ({', '.join(map(repr, CHANNEL_PREFIXES))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The events to read; every field narrows the result.

    Times are aware; `since` is inclusive and `until` exclusive. `before_id` and `after_id` are
    exclusive. `ids`, if set, are the only events considered. `limit` is the maximum number of
    events in an answer, or of hits on a page.
    """

    scope: Scope
    network: str | None = None
    channel: str | None = None
    nick: str | None = None
    account: str | None = None
    user: str | None = None
    host: str | None = None
    types: frozenset[EventType] | None = None
    own: bool | None = None
    since: datetime | None = None
    until: datetime | None = None
    before_id: int | None = None
    after_id: int | None = None
    ids: frozenset[int] | None = None
    limit: int = 50

    def in_channel(self, name: ChannelName | None) -> Query:
        """Return the query narrowed to the channels of a name, or itself for None."""
        if name is None:
            return self
        return replace(self, network=name.network, channel=name.channel)


@dataclass(frozen=True, slots=True)
class VisibleChannels:
    """The channels that a query may read, by id, and the ids of all `others`; `public` is True if
    they are exactly all public channels."""

    rows: Mapping[int, Row]
    others: frozenset[int]
    public: bool


def _visible(scope: Scope) -> tuple[str, list[Any]]:
    """Return the SQL condition on `channels c` that confines a reader to a scope, with its values.
    It is the only place where a scope is enforced."""
    if scope.places is None:
        return "TRUE" if scope.private else _PUBLIC, []
    if not scope.places:
        return "FALSE", []
    # Names are compared without case: in PostgreSQL because of the cast, in SQLite, for which
    # CITEXT is just TEXT, by the collation of the column.
    pairs = ", ".join("(?, CAST(? AS CITEXT))" for _ in scope.places)  # without case
    values = [part for place in scope.places for part in (place.network, place.channel)]
    ids = f"SELECT v.id FROM channels v WHERE (v.network, v.name) IN (VALUES {pairs})"
    return f"c.id IN ({ids})", values


def channels_in(connection: Connection, query: Query) -> VisibleChannels:
    """Return the channels that a query asks for and may see."""
    where, values = _visible(query.scope)
    for column, value in (("network", query.network), ("name", query.channel)):
        if value is not None:
            where += f" AND c.{column} = ?"
            values.append(value)
    rows = connection.execute(f"SELECT *, {where} AS seen FROM channels c", values).fetchall()
    seen = {row["id"]: row for row in rows if row["seen"]}
    others = frozenset(row["id"] for row in rows if not row["seen"])
    # Exactly all public channels: then `seen` is the opposite of `private` in every row.
    return VisibleChannels(seen, others, all(row["seen"] != row["private"] for row in rows))


def id_at(time: datetime) -> int:
    """Return the id of an event of this time, a number of milliseconds; later events of the same
    millisecond get the next ones (`allocate_ids`)."""
    return to_micros(time) // 1000


def last_credible_id() -> int:
    """Return the greatest id that an event can have at the moment if no clock was wrong."""
    return time.time_ns() // 1_000_000 + MAX_CLOCK_LEAD_MS


def until_now(query: Query) -> Query:
    """Return a query for the newest events that leaves out those with a wrong time in the
    future, which would be the newest for years; one that has an end or begins in the future is
    unchanged."""
    ends = (query.until, query.before_id, query.after_id, query.ids)
    last = last_credible_id()
    wants_future = query.since is not None and id_at(query.since) > last
    if wants_future or any(end is not None for end in ends):
        return query
    return replace(query, before_id=last + 1)


def find(connection: Connection, query: Query, *, newest: bool) -> list[Event]:
    """Return the newest (or oldest) events that match, in chronological order either way."""
    channels = channels_in(connection, query)
    rows = (
        newest_rows(connection, query, channels)
        if newest
        else query_rows(connection, query, channels, newest=False)
    )
    events = [event_of(row, channels.rows[row["channel_id"]]) for row in rows]
    return events[::-1] if newest else events


def newest_rows(connection: Connection, query: Query, channels: VisibleChannels) -> list[Row]:
    """Return the rows of the newest events that match, newest first; those with a wrong time in the
    future only if there are no others."""
    present = until_now(query)
    rows = query_rows(connection, present, channels, newest=True)
    if rows or present is query:
        return rows
    return query_rows(connection, query, channels, newest=True)


def query_rows(
    connection: Connection,
    query: Query,
    channels: VisibleChannels,
    *,
    newest: bool,
    extra: tuple[str, list[Any]] = ("", []),
) -> list[Row]:
    """Return the rows of the newest (or oldest) events that match, newest (or oldest) first.

    `extra` is a further SQL condition with its values. There is one statement for each channel,
    which reads an index on channel and id in order, so that the last lines of a quiet channel are
    found as fast as those of a busy one; the results are merged.
    """
    where, values = conditions(connection, query)
    where, values = where + extra[0], [*values, *extra[1]]
    order = "DESC" if newest else "ASC"
    sql = f"SELECT * FROM events WHERE {{}} AND {where} ORDER BY id {order} LIMIT {query.limit}"
    # All channels are wanted: then the table itself is in the right order. Not for a nick, whose
    # lines may be rare: an index has them by nick and channel.
    if not channels.others and query.nick is None:
        return connection.execute(sql.format("TRUE"), values).fetchall()
    lists = [
        connection.execute(sql.format("channel_id = ?"), [channel_id, *values]).fetchall()
        for channel_id in channels.rows
    ]
    ordered = merge(*lists, key=lambda row: row["id"], reverse=newest)
    return list(islice(ordered, query.limit))


def conditions(connection: Connection, query: Query) -> tuple[str, list[Any]]:
    """Return the SQL condition on `events` for all of a query but its channels, with its values."""
    parts, values = ["TRUE"], []
    begin, end = id_range(connection, query)
    for sql, value in (
        ("nick = ?", query.nick),
        ("account = ?", query.account),
        ('"user" = ?', query.user),
        ("host = ?", query.host),
        ("own = ?", query.own),
        ("time >= ?", query.since and to_micros(query.since)),
        ("time < ?", query.until and to_micros(query.until)),
        ("id >= ?", begin),
        ("id <= ?", end),
    ):
        if value is not None:
            parts.append(sql)
            values.append(value)
    if query.ids is not None:
        parts.append(f"id IN {GIVEN}")
        values.append(json.dumps(sorted(query.ids)))
    if query.types is not None:
        # IN (NULL) is never true, whereas PostgreSQL has no empty list.
        parts.append(f"type IN ({', '.join('?' for _ in query.types) or 'NULL'})")
        values.extend(sorted(query.types))
    return " AND ".join(parts), values


def id_range(connection: Connection, query: Query) -> tuple[int | None, int | None]:
    """Return the first and the last id that can match a query, each None if there is no bound."""
    begins = [] if query.after_id is None else [query.after_id + 1]
    ends = [] if query.before_id is None else [query.before_id - 1]
    if query.since is not None:
        begins.append(id_at(query.since))
    if query.until is not None:
        # An id may be ahead of its event's time, by the drift of its partition at most.
        drift = connection.execute("SELECT coalesce(max(drift), 0) FROM partitions").fetchone()[0]
        ends.append(max(1, id_at(query.until)) + drift)
    return max(begins, default=None), min(ends, default=None)


def rows_of(connection: Connection, ids: Collection[int]) -> Cursor:
    """Return the rows of these events, newest first."""
    sql = f"SELECT * FROM events WHERE id IN {GIVEN} ORDER BY id DESC"
    return connection.execute(sql, [json.dumps(list(ids))])


def add_quotes(connection: Connection, answer: int, lines: Collection[int]) -> None:
    """Record that the event `answer`, or our lines that answer it, repeat `lines`."""
    connection.execute(_ADD_QUOTES, [json.dumps(list(lines)), answer])


def quoted_lines(connection: Connection, lines: Collection[int]) -> frozenset[int]:
    """Return those `lines` that people have said and, of our own, the lines that they repeat."""
    given = json.dumps(list(lines))
    return frozenset(row[0] for row in connection.execute(_SOURCES, [given, given]))


def answers_quoting(connection: Connection, lines: Collection[int]) -> frozenset[int]:
    """Return the events that are, or are answered by, lines of our own that repeat `lines`."""
    sql = f"SELECT DISTINCT answer_id FROM quotes WHERE line_id IN {GIVEN}"
    return frozenset(row[0] for row in connection.execute(sql, [json.dumps(list(lines))]))
