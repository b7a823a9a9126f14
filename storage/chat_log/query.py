"""Which events somebody wants, and the one place that says which events they may have.

Every reading of the log, be it a list, a search, a count or the live end, first asks `channels_in`
which channels it may look at, and looks at no others.
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
from storage.chat_log.event_table import CLOCK, event_of
from storage.db.database import Connection, Row, to_micros

FUTURE = 2 * CLOCK
"""Milliseconds from now on from which an id is of a wrong time: times that are up to a day ahead
are taken, and what is said a day after one is still numbered behind it."""

# The sign as well: a row that says it is public is not believed.
_PUBLIC = f"c.private = 0 AND substr(c.name, 1, 1) IN ({', '.join(map(repr, CHANNEL_PREFIXES))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which events to read: every field narrows. Times are aware, `since` is the first moment and
    `until` the first one after; `before_id` and `after_id` leave out the event they name; `ids` are
    the only ones wanted; `limit`
    is the most events of an answer, or the hits on a page."""

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
    """Channels by id, and the ids of all `others`; `public` when they are all the public ones."""

    rows: Mapping[int, Row]
    others: frozenset[int]
    public: bool


def _visible(scope: Scope) -> tuple[str, list[Any]]:
    """Return the condition on `channels c` that keeps a reader inside a scope: the only one there
    is."""
    if scope.places is None:
        return "TRUE" if scope.private else _PUBLIC, []
    if not scope.places:
        return "FALSE", []
    pairs = ", ".join("(?, CAST(? AS CITEXT))" for _ in scope.places)  # without case
    values = [part for place in scope.places for part in (place.network, place.channel)]
    ids = f"SELECT v.id FROM channels v WHERE (v.network, v.name) IN (VALUES {pairs})"
    return f"c.id IN ({ids})", values


def channels_in(connection: Connection, query: Query) -> VisibleChannels:
    """Return the channels that a query may see and asks for."""
    where, values = _visible(query.scope)
    for column, value in (("network", query.network), ("name", query.channel)):
        if value is not None:
            where += f" AND c.{column} = ?"
            values.append(value)
    rows = connection.execute(f"SELECT *, {where} AS seen FROM channels c", values).fetchall()
    seen = {row["id"]: row for row in rows if row["seen"]}
    others = frozenset(row["id"] for row in rows if not row["seen"])
    return VisibleChannels(seen, others, all(row["seen"] != row["private"] for row in rows))


def last_credible_id() -> int:
    """Return the greatest id that an event can have by now if no clock was wrong."""
    return time.time_ns() // 1_000_000 + FUTURE


def until_now(query: Query) -> Query:
    """Return a query for the newest events without those of a wrong time in the future, which would
    be the newest for years; itself if it says by itself where to end."""
    ends = (query.until, query.before_id, query.after_id, query.ids)
    last = last_credible_id()
    wants_future = query.since is not None and to_micros(query.since) // 1000 > last
    if wants_future or any(end is not None for end in ends):
        return query
    return replace(query, before_id=last + 1)


def find(connection: Connection, query: Query, *, newest: bool) -> list[Event]:
    """Return the newest (or oldest) events that fit, in order of time either way."""
    if query.limit == 0:
        return []
    channels = channels_in(connection, query)
    if newest:
        return _newest(connection, query, channels)
    return _events(connection, query, channels, newest=False)


def newest(connection: Connection, queries: Sequence[Query]) -> list[list[Event]]:
    """Return the newest events that fit each query, in order of time."""
    known: dict[tuple[Any, ...], VisibleChannels] = {}

    def events(query: Query) -> list[Event]:
        place = query.scope, query.network, query.channel
        if place not in known:
            known[place] = channels_in(connection, query)
        return _newest(connection, query, known[place])

    return [events(query) if query.limit else [] for query in queries]


def _newest(connection: Connection, query: Query, channels: VisibleChannels) -> list[Event]:
    """Return the newest events that fit; those of a wrong time only where there are no others."""
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
    """Return the rows of the newest (or oldest) events that fit, those first; `extra` is a further
    condition with its values.

    Each channel has its own index, in order, so that one where little is said is found as fast as
    one where much is; all channels together need none, unless it is for a person.
    """
    where, values = conditions(connection, query)
    where, values = where + extra[0], [*values, *extra[1]]
    order = "DESC" if newest else "ASC"
    sql = f"SELECT * FROM events WHERE {{}} AND {where} ORDER BY id {order} LIMIT {query.limit}"
    # Every channel may be read: then the order of ids is that of the table itself.
    if not channels.others and query.nick is None:
        return connection.execute(sql.format("TRUE"), values).fetchall()
    lists = [
        connection.execute(sql.format("channel_id = ?"), [channel_id, *values]).fetchall()
        for channel_id in channels.rows
    ]
    ordered = merge(*lists, key=lambda row: row["id"], reverse=newest)
    return list(islice(ordered, query.limit))


def conditions(connection: Connection, query: Query) -> tuple[str, list[Any]]:
    """Return the condition on `events` of all that a query asks for but its channels."""
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
        parts.append(f"type IN ({', '.join('?' for _ in query.types) or 'NULL'})")
        values.extend(sorted(query.types))
    return " AND ".join(parts), values


def id_range(connection: Connection, query: Query) -> tuple[int | None, int | None]:
    """Return the first and the last id that can fit a query, None where it asks for no end.

    An id is its event's time in milliseconds or a little more (see `storage.chat_log.event_table`).
    """
    begins = [] if query.after_id is None else [query.after_id + 1]
    ends = [] if query.before_id is None else [query.before_id - 1]
    if query.since is not None:
        begins.append(to_micros(query.since) // 1000)
    if query.until is not None:
        # An id may be later than its time, by the drift of its partition at most.
        drift = connection.execute("SELECT coalesce(max(drift), 0) FROM partitions").fetchone()[0]
        ends.append(max(1, to_micros(query.until) // 1000) + drift)
    return max(begins, default=None), min(ends, default=None)
