"""Queries of the log, and the access control of all reads.

Every read of the log, whether a list, a search, a count or the live end, first asks `channels_in`
for the channels that it may see, and reads no others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import CHANNEL_PREFIXES, Event, EventType, Scope
from storage.chat_log.event_table import MAX_CLOCK_LAG_MS, event_of
from storage.db.database import Connection, Row, to_micros

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
    """The channels that a query may read, by id, and the ids of all `others`.

    `public` is True if they are exactly all public channels.
    """

    rows: Mapping[int, Row]
    others: frozenset[int]
    public: bool


def _visible(scope: Scope) -> tuple[str, list[Any]]:
    """Return the SQL condition on `channels c` that confines a reader to a scope, with its values.

    It is the only place where a scope is enforced.
    """
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


def last_credible_id() -> int:
    """Return the greatest id that an event can have at the moment if no clock was wrong."""
    return time.time_ns() // 1_000_000 + MAX_CLOCK_LEAD_MS


def until_now(query: Query) -> Query:
    """Return a query for the newest events that leaves out those with a wrong time in the future.

    They would be the newest ones for years. A query with bounds by id or an `until`, or one that
    begins in the future, is returned unchanged.
    """
    ends = (query.until, query.before_id, query.after_id, query.ids)
    last = last_credible_id()
    wants_future = query.since is not None and to_micros(query.since) // 1000 > last
    if wants_future or any(end is not None for end in ends):
        return query
    return replace(query, before_id=last + 1)


def find(connection: Connection, query: Query, *, newest: bool) -> list[Event]:
    """Return the newest (or oldest) events that match, in chronological order either way."""
    if query.limit == 0:
        return []
    channels = channels_in(connection, query)
    if newest:
        return _newest(connection, query, channels)
    return _events(connection, query, channels, newest=False)


def newest(connection: Connection, queries: Sequence[Query]) -> list[list[Event]]:
    """Return the newest events that match each query, in chronological order."""
    known: dict[tuple[Any, ...], VisibleChannels] = {}

    def events(query: Query) -> list[Event]:
        place = query.scope, query.network, query.channel
        if place not in known:
            known[place] = channels_in(connection, query)
        return _newest(connection, query, known[place])

    return [events(query) if query.limit else [] for query in queries]


def _newest(connection: Connection, query: Query, channels: VisibleChannels) -> list[Event]:
    """Return the newest events that match; those with a wrong time only if there are no others."""
    present = until_now(query)
    found = _events(connection, present, channels, newest=True)
    if found or present is query:
        return found
    return _events(connection, query, channels, newest=True)


def _events(
    connection: Connection, query: Query, channels: VisibleChannels, *, newest: bool
) -> list[Event]:
    rows = query_rows(connection, query, channels, newest=newest)
    events = [event_of(row, channels.rows[row["channel_id"]]) for row in rows]
    return events[::-1] if newest else events


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
    """Return the SQL condition on `events` for everything in a query but its channels, with its
    values."""
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
        parts.append("id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))")
        values.append(json.dumps(sorted(query.ids)))
    if query.types is not None:
        # IN (NULL) is never true, whereas PostgreSQL has no empty list.
        parts.append(f"type IN ({', '.join('?' for _ in query.types) or 'NULL'})")
        values.extend(sorted(query.types))
    return " AND ".join(parts), values


def id_range(connection: Connection, query: Query) -> tuple[int | None, int | None]:
    """Return the first and the last id that can match a query, each None if there is no bound.

    An id is its event's time in milliseconds or a little more (see `storage.chat_log.event_table`).
    """
    begins = [] if query.after_id is None else [query.after_id + 1]
    ends = [] if query.before_id is None else [query.before_id - 1]
    if query.since is not None:
        begins.append(to_micros(query.since) // 1000)
    if query.until is not None:
        # An id may be ahead of its event's time, by the drift of its partition at most.
        drift = connection.execute("SELECT coalesce(max(drift), 0) FROM partitions").fetchone()[0]
        ends.append(max(1, to_micros(query.until) // 1000) + drift)
    return max(begins, default=None), min(ends, default=None)
