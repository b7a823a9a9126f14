"""The order of arrival of events, for readers that follow the live end of the log.

Ids follow time, and a time may be wrong: after one line dated 2099, everything said until then
would count as history. Therefore live events, and imported ones that are not history, are also
recorded in the table `arrivals` in order of insertion, the last 20,000 (`event_table.insert`). The
table has no index by event, because every write would pay for a lookup that is rare.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from storage.chat_log.event import Event
from storage.chat_log.event_table import Query, channels_in, conditions, event_of
from storage.connection import GIVEN, Connection

# In SQLite a CROSS JOIN fixes the order of the loops: over the newest arrivals first, then a lookup
# by id. The planner might otherwise begin with all events of the channels.
_IN_CHANNELS = f"arrivals CROSS JOIN events e WHERE e.id = event_id AND channel_id IN {GIVEN}"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Events in order of arrival, and the position from which to read on."""

    events: list[Event]
    position: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The position of the last arrival, and the greatest id, whether its time is right or not."""

    position: int
    newest_id: int


def end(connection: Connection) -> LogEnd:
    """Return the current end of the log."""
    # Lower than before if the last arrivals were deleted, which skips and repeats nothing: no `seq`
    # is used twice. The counter behind it would not do, as it runs ahead of what is committed.
    sql = "SELECT (SELECT max(seq) FROM arrivals), (SELECT max(id) FROM events)"
    position, newest = connection.execute(sql).fetchone()
    return LogEnd(position or 0, newest or 0)


def position_of(connection: Connection, event_id: int) -> int | None:
    """Return the position of an event; None if it is too old, or was imported as history."""
    sql = "SELECT seq FROM arrivals WHERE event_id = ? ORDER BY seq DESC LIMIT 1"
    row = connection.execute(sql, [event_id]).fetchone()
    return int(row[0]) if row else None


def after(connection: Connection, query: Query, position: int) -> Arrivals:
    """Return the events that match `query` and arrived after `position`, `query.limit` at most."""
    channels = channels_in(connection, query)
    where, values = conditions(connection, query)
    rows = connection.execute(
        f"SELECT e.*, seq FROM {_IN_CHANNELS} AND seq > ? AND {where} ORDER BY seq LIMIT ?",
        [json.dumps(list(channels.rows)), position, *values, query.limit],
    ).fetchall()
    # On a full page there may be more after its last row. Else all arrivals up to the end were
    # looked at, so the next call can skip those that did not match.
    position = rows[-1]["seq"] if len(rows) == query.limit else end(connection).position
    events = [event_of(tuple(row)[:-1], channels.rows[row["channel_id"]]) for row in rows]
    return Arrivals(events, position)


def newest_id_in_channels(connection: Connection, query: Query) -> int:
    """Return the id of the last arrival on the channels of `query`; 0 when there is none."""
    channels = channels_in(connection, query)
    sql = f"SELECT event_id FROM {_IN_CHANNELS} ORDER BY seq DESC LIMIT 1"
    row = connection.execute(sql, [json.dumps(list(channels.rows))]).fetchone()
    return int(row[0]) if row else 0
