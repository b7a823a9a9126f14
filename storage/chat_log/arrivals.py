"""The order in which events came into the log, for those who follow its live end.

Ids follow time, and a time may be wrong: one line that says it is of the year 2099 would be the
newest for good, and all that is said until then would count as history. So what is said now, and
what is newer than all before, is also noted in the table `arrivals`, which grows in the order of
insertion; whoever follows goes by that. It has the last 20,000 events (`event_table.insert`), and
no index by event: each line that is written would pay for what is asked seldom.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from storage.chat_log.event import Event
from storage.chat_log.event_table import event_of
from storage.chat_log.query import Query, channels_in, conditions
from storage.connection import Connection, Dialect

# PostgreSQL's own sequence is ahead of what is committed, and a reader would miss what is between.
_LAST = {
    Dialect.SQLITE: "SELECT seq FROM sqlite_sequence WHERE name = 'arrivals'",
    Dialect.POSTGRES: "SELECT coalesce(max(seq), 0) FROM arrivals",
}
# In SQLite a CROSS JOIN is also an order.
_JOINED = {
    Dialect.SQLITE: "arrivals CROSS JOIN events e ON e.id = event_id",
    Dialect.POSTGRES: "arrivals JOIN events e ON e.id = event_id",
}
_IN_CHANNELS = "channel_id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Events in the order in which they came, and the position up to which that is all."""

    events: list[Event]
    position: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The position after all that has come, and the greatest id, be its time true or not."""

    position: int
    newest_id: int


def end(connection: Connection) -> LogEnd:
    """Return where the log ends at the moment."""
    row = connection.execute(_LAST[connection.dialect]).fetchone()
    (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
    return LogEnd(int(row[0]) if row else 0, int(newest))


def position_of(connection: Connection, event_id: int) -> int | None:
    """Return the position of an event; None of one that is older than the table or was imported."""
    sql = "SELECT seq FROM arrivals WHERE event_id = ? ORDER BY seq DESC LIMIT 1"
    row = connection.execute(sql, [event_id]).fetchone()
    return int(row[0]) if row else None


def after(connection: Connection, query: Query, position: int) -> Arrivals:
    """Return the events that fit `query` and came after `position`, `query.limit` at most."""
    channels = channels_in(connection, query)
    where, values = conditions(connection, query)
    rows = connection.execute(
        f"SELECT e.*, seq FROM {_JOINED[connection.dialect]} WHERE seq > ? AND {_IN_CHANNELS}"
        f" AND {where} ORDER BY seq LIMIT ?",
        [position, json.dumps(list(channels.rows)), *values, query.limit],
    ).fetchall()
    position = rows[-1]["seq"] if len(rows) == query.limit else end(connection).position
    events = [event_of(tuple(row)[:-1], channels.rows[row["channel_id"]]) for row in rows]
    return Arrivals(events, position)


def newest_id(connection: Connection, query: Query) -> int:
    """Return the id of the last event to come that fits `query`; 0 when there is none."""
    channels = channels_in(connection, query)
    row = connection.execute(
        f"SELECT event_id FROM {_JOINED[connection.dialect]}"
        f" WHERE {_IN_CHANNELS} ORDER BY seq DESC LIMIT 1",
        [json.dumps(list(channels.rows))],
    ).fetchone()
    return int(row[0]) if row else 0
