"""Statistics of the log, from the counters of `storage.log_index`.

All of them count spoken lines. Times are UTC unless a zone is given.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from storage.chat_log.event import SPOKEN, Place, Scope
from storage.chat_log.event_table import (
    Query,
    VisibleChannels,
    channels_in,
    conditions,
    last_credible_id,
    newest_rows,
    query_rows,
)
from storage.connection import GIVEN, Connection, Row
from storage.db.database import from_micros, to_micros
from storage.log_index import EVERYWHERE, fold_name

_HOUR = 3_600_000_000  # microseconds
_DAY = 24 * _HOUR
_WEEK = 7 * 24  # hours
_MAX_DAY = 1 << 40  # days, more than any time has
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """A place in the log with the number of its events and the time of the last one."""

    place: Place
    private: bool
    events: int
    last_time: datetime | None


@dataclass(frozen=True, slots=True)
class Stats:
    """Totals of spoken lines; `people` counts nicks, `replies` our own answers, and `top` are the
    most talkative nicks with their lines."""

    lines: int
    people: int
    replies: int
    first: datetime | None
    last: datetime | None
    top: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DayStats:
    """A day with its lines, of which `replies` are our own answers."""

    date: date
    lines: int
    replies: int


@dataclass(frozen=True, slots=True)
class PersonStats:
    """A nick's latest spelling, its lines in total and by place (most first), and its days."""

    nick: str
    lines: int
    first: datetime
    last: datetime
    places: tuple[tuple[Place, int], ...]
    days: tuple[DayStats, ...]


HeatMap = tuple[tuple[int, ...], ...]
"""Lines by weekday and hour: seven rows, Monday first, of 24 hours each."""


def channels(connection: Connection, scope: Scope) -> list[ChannelStats]:
    """Return the places in scope, the most recently active first."""
    seen = channels_in(connection, Query(scope=scope)).rows
    rows = connection.execute(
        "SELECT channel_id, events,"
        " (SELECT time FROM events e WHERE e.channel_id = t.channel_id AND id <= ?"
        f" ORDER BY id DESC LIMIT 1) AS last FROM totals t WHERE channel_id IN {GIVEN}"
        " ORDER BY last DESC NULLS LAST",
        [last_credible_id(), json.dumps(list(seen))],
    )
    return [
        ChannelStats(
            *(_place(seen[channel_id]), bool(seen[channel_id]["private"]), events),
            None if last is None else from_micros(last),
        )
        for channel_id, events, last in rows
    ]


def stats(connection: Connection, query: Query, top: int = 5) -> Stats:
    """Return totals of the spoken lines that match, and the `top` most talkative nicks."""
    seen = channels_in(connection, query)
    if _timeless(query) and query.nick is None:
        lines, replies, people, best = _of_all_time(connection, query, seen, top)
    else:
        said = _lines_by_nick(connection, query, seen)
        lines, replies, people = sum(r[1] for r in said), sum(r[2] for r in said), len(said)
        best = [(row[0], row[1]) for row in said[:top]]
    spoken = replace(query, types=SPOKEN if query.types is None else query.types & SPOKEN, limit=1)
    oldest = query_rows(connection, spoken, seen, newest=False)
    ends = oldest, newest_rows(connection, spoken, seen)
    first, last = (from_micros(rows[0]["time"]) if rows else None for rows in ends)
    return Stats(lines, people, replies, first, last, tuple(best))


def own_nicks(connection: Connection, query: Query) -> frozenset[str]:
    """Return the nicks under which we have said something on the channels of `query`."""
    ids = _counted_as(channels_in(connection, query))
    sql = f"SELECT DISTINCT nick FROM people WHERE channel_id IN ({_placeholders(ids)}) AND own = ?"
    return frozenset(row[0] for row in connection.execute(sql, [*ids, True]))


def heat_map(connection: Connection, query: Query) -> HeatMap:
    """Count all lines on the channels of `query` by weekday and hour, whatever else it asks for."""
    ids = _counted_as(channels_in(connection, query))
    rows = connection.execute(
        f"SELECT slot, sum(lines) FROM week WHERE channel_id IN ({_placeholders(ids)})"
        " GROUP BY slot",
        ids,
    )
    lines = {row[0]: row[1] for row in rows}
    return tuple(tuple(lines.get(day * 24 + hour, 0) for hour in range(24)) for day in range(7))


def days(connection: Connection, query: Query, zone: tzinfo = UTC) -> list[DayStats]:
    """Return the days of `zone` with lines, in order, on the channels of `query` between its
    `since` and `until`.

    The counters are by hour of UTC. In zones that are not a whole number of hours from UTC, the
    hour around midnight counts for the day on which it began.
    """
    ids = _counted_as(channels_in(connection, query))
    where = f"channel_id IN ({_placeholders(ids)})"
    sql = f"SELECT min(hour), max(hour) FROM hours WHERE {where}"
    first, last = connection.execute(sql, ids).fetchone()
    if first is None:
        return []
    # Whole hours only: `since` is rounded down and `until` up.
    begin = max(first, to_micros(query.since) // _HOUR) if query.since else first
    end = min(last + 1, -(-to_micros(query.until) // _HOUR)) if query.until else last + 1
    found: dict[int, tuple[int, int]] = {}
    for start, stop, offset in _offsets(zone, begin, end):
        for day, lines, replies in connection.execute(
            "SELECT (hour * 3600 + ?) / 86400 AS day, sum(lines), sum(replies) FROM hours"
            f" WHERE {where} AND hour >= ? AND hour < ? GROUP BY day",
            [offset, *ids, start, stop],
        ):
            known = found.get(day, (0, 0))
            found[day] = (known[0] + lines, known[1] + replies)
    return [DayStats(_date(day), lines, replies) for day, (lines, replies) in sorted(found.items())]


def hours(connection: Connection, query: Query) -> dict[datetime, int]:
    """Return the lines of each hour of UTC with any, by its beginning, on the channels of `query`
    between its `since` and `until`, which it must have."""
    assert query.since is not None
    assert query.until is not None
    ids = _counted_as(channels_in(connection, query))
    rows = connection.execute(
        f"SELECT hour, sum(lines) FROM hours WHERE channel_id IN ({_placeholders(ids)})"
        " AND hour >= ? AND hour < ? GROUP BY hour ORDER BY hour",
        [*ids, to_micros(query.since) // _HOUR, -(-to_micros(query.until) // _HOUR)],
    )
    return {from_micros(hour * _HOUR): lines for hour, lines in rows}


def sparklines(
    connection: Connection, scope: Scope, until: datetime, days: int = 30
) -> dict[Place, tuple[int, ...]]:
    """Return the lines of each place in scope on each of the last `days`, oldest first; the last
    ends at `until`, rounded up to an hour. Silent places are left out."""
    seen = channels_in(connection, Query(scope=scope)).rows
    end = -(-to_micros(until) // _HOUR)
    rows = connection.execute(
        f"SELECT channel_id, (? - 1 - hour) / 24 AS age, sum(lines) FROM hours"
        f" WHERE channel_id IN ({_placeholders(seen)}) AND hour >= ? AND hour < ? GROUP BY 1, 2",
        [end, *seen, end - 24 * days, end],
    )
    lines: dict[int, list[int]] = {}
    for channel_id, age, said in rows:
        lines.setdefault(channel_id, [0] * days)[days - 1 - age] = said
    return {_place(seen[channel_id]): tuple(each) for channel_id, each in lines.items()}


def person(
    connection: Connection, scope: Scope, nick: str, network: str | None = None
) -> PersonStats | None:
    """Return the statistics of a nick in scope, on one network or all; None if it never spoke."""
    query = Query(scope=scope, network=network, nick=nick, types=SPOKEN, limit=1)
    seen = channels_in(connection, query)
    last = newest_rows(connection, query, seen)
    first = query_rows(connection, query, seen, newest=False)
    if not last or not first:
        return None
    values = [nick, *seen.rows]
    where = f"nick = ? AND channel_id IN ({_placeholders(seen.rows)})"
    places = connection.execute(
        f"SELECT channel_id, sum(lines) AS said FROM people_days WHERE {where}"
        " GROUP BY channel_id ORDER BY said DESC",
        values,
    ).fetchall()
    spoken = connection.execute(
        f"SELECT day, sum(lines), sum(replies) FROM people_days WHERE {where}"
        " GROUP BY day ORDER BY day",
        values,
    )
    return PersonStats(
        nick=last[0]["nick"],
        lines=sum(row[1] for row in places),
        first=from_micros(first[0]["time"]),
        last=from_micros(last[0]["time"]),
        places=tuple((_place(seen.rows[row[0]]), row[1]) for row in places),
        days=tuple(DayStats(_date(row[0]), row[1], row[2]) for row in spoken),
    )


def _timeless(query: Query) -> bool:
    """Return True if a query has only what the counters can answer: channels, a nick and `own`."""
    return query == Query(
        scope=query.scope,
        network=query.network,
        channel=query.channel,
        nick=query.nick,
        own=query.own,
        limit=query.limit,
    )


def _of_all_time(
    connection: Connection, query: Query, seen: VisibleChannels, top: int
) -> tuple[int, int, int, list[tuple[str, int]]]:
    """Return the numbers of lines, answers and nicks, and the most talkative nicks, as counted."""
    ids = _counted_as(seen)
    where, values = f"channel_id IN ({_placeholders(ids)})", [*ids]
    total, own, replies = connection.execute(
        "SELECT coalesce(sum(lines), 0), coalesce(sum(own), 0), coalesce(sum(replies), 0)"
        f" FROM totals WHERE {where}",
        values,
    ).fetchone()
    if query.own is not None:
        where, values = f"{where} AND own = ?", [*values, query.own]
    people = connection.execute(
        f"SELECT count(*) FROM (SELECT DISTINCT nick FROM people WHERE {where}) AS nicks", values
    ).fetchone()[0]
    lines = {None: total, True: own, False: total - own}[query.own]
    replies = 0 if query.own is False else replies
    # A nick that was both ours and somebody else's has two rows in a channel, which are added up.
    rows = connection.execute(
        f"SELECT nick, sum(lines) AS said FROM people WHERE {where} GROUP BY nick"
        " ORDER BY said DESC LIMIT ?",
        [*values, top],
    )
    return lines, replies, people, [(row[0], row[1]) for row in rows]


def _lines_by_nick(
    connection: Connection, query: Query, seen: VisibleChannels
) -> list[tuple[str, int, int]]:
    """Count lines, and our answers among them, by nick, most lines first.

    Whole days are read from the counters where these can answer the query, all else from the log.
    """
    untimed = replace(query, since=None, until=None)
    begin = -(-to_micros(query.since) // _DAY) if query.since else -_MAX_DAY
    end = to_micros(query.until) // _DAY if query.until else _MAX_DAY
    rows: list[Sequence[Any]] = []
    in_log = [query]
    if _timeless(untimed) and begin < end:
        in_log = []
        if query.since:
            in_log.append(replace(query, until=from_micros(begin * _DAY)))
        if query.until:
            in_log.append(replace(query, since=from_micros(end * _DAY)))
        where = f"channel_id IN ({_placeholders(seen.rows)}) AND day >= ? AND day < ?"
        values: list[Any] = [*seen.rows, begin, end]
        for column, value in (("nick", query.nick), ("own", query.own)):
            if value is not None:
                where, values = f"{where} AND {column} = ?", [*values, value]
        sql = f"SELECT nick, sum(lines), sum(replies) FROM people_days WHERE {where} GROUP BY nick"
        rows += connection.execute(sql, values)
    for part in in_log:
        types = SPOKEN if part.types is None else SPOKEN & part.types
        where, values = conditions(connection, replace(part, types=types))
        rows += connection.execute(
            "SELECT nick || '', count(*), count(*) FILTER (WHERE own = 1 AND reply_to IS NOT NULL)"
            " FROM events"
            # The unary plus keeps SQLite from using the index by channel, and `|| ''` above from
            # grouping by that of nicks: the range of ids is smaller than all that either has said.
            f" WHERE {where} AND +channel_id IN ({_placeholders(seen.rows)}) GROUP BY 1",
            [*values, *seen.rows],
        )
    found: dict[str, tuple[str, int, int]] = {}
    for nick, lines, replies in rows:
        known = found.get(fold_name(nick), (nick, 0, 0))
        found[fold_name(nick)] = (known[0], known[1] + lines, known[2] + replies)
    return sorted(found.values(), key=lambda each: -each[1])


def _offsets(zone: tzinfo, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the spans of the hours from `begin` to `end` in which the UTC offset of `zone` is
    constant: first hour, hour after the last, and offset in seconds."""

    def offset(hour: int) -> int:
        local = (_EPOCH + timedelta(hours=hour)).astimezone(zone)
        return int((local.utcoffset() or timedelta()).total_seconds())

    # In steps of a week, then of an hour, which assumes that no zone changes its offset and back
    # within a week.
    while begin < end:
        ahead = offset(begin)
        stop = begin + 1
        while stop < end and offset(min(stop + _WEEK, end) - 1) == ahead:
            stop = min(stop + _WEEK, end)
        while stop < end and offset(stop) == ahead:
            stop += 1
        yield begin, stop, ahead
        begin = stop


def _counted_as(seen: VisibleChannels) -> list[int]:
    """Return the channel ids of the counters to add up; EVERYWHERE alone for all public ones."""
    return [EVERYWHERE] if seen.public else list(seen.rows)


def _placeholders(values: Collection[object]) -> str:
    return ", ".join("?" * len(values)) or "NULL"


def _place(row: Row) -> Place:
    return Place(row["network"], row["name"])


def _date(day: int) -> date:
    return (_EPOCH + timedelta(days=day)).date()
