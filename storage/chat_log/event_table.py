"""The table `events`: rows, their ids, and how events are stored.

Ids follow time. The id of an event is its time in milliseconds since 1970, or the next number that
is free. So one order serves for reading, for searching the newest first and for finding a time,
and history that is imported years later takes its place among what was there.

Those who follow the log go by `storage.chat_log.arrivals`. So that others who ask for what comes
after the last id they saw miss nothing either, a line that comes at most `LATE` after its time is
numbered after the newest of all, and one that is said now at most `CLOCK`, whatever a server's
clock has been put back to; only an older one, which is history, goes back in time. An id is
therefore never before its event's time and seldom much after it; `AllocatedIds.drift` says by how
much at most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from storage import log_index
from storage.chat_log.event import Event, EventType, is_private
from storage.db.database import Connection, Row, from_micros, to_micros

LATE = 300_000  # milliseconds that a line may be on its way: a net split, a slow server
CLOCK = 86_400_000  # milliseconds that the time of a line may be behind although it is said now
ARRIVALS = 20_000  # events whose order of insertion is known, at least
_TRIMMED = 1_000  # older ones that are removed at once: each removal writes pages of its own
_CHANNELS = "SELECT id, network, name, private FROM channels"
_CHANNEL = "INSERT INTO channels (network, name, private) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_TRIM = "DELETE FROM arrivals WHERE seq < (SELECT (max(seq) - ?1) / ?2 * ?2 FROM arrivals)"
_NEAR = 1_024  # ids looked at behind each time to find one that is free
_TAKEN = (
    "SELECT DISTINCT events.id FROM json_each(?) t"
    " JOIN events ON events.id BETWEEN CAST(t.value AS BIGINT) AND CAST(t.value AS BIGINT) + ?"
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_CACHED = 512  # events: the next prompt has most lines of the last one
_TYPES = {kind.value: kind for kind in EventType}


def insert(connection: Connection, events: Sequence[Event], *, live: bool = False) -> Sequence[int]:
    """Store events inside the transaction of `connection` and return their ids, in the same order.

    An event that is much older than the newest one is history: its id goes back in time. Those who
    follow the log are shown what is `live`, said now, whatever its time, and else what is no
    history.
    """
    events = [storable(event) for event in events]
    channels, private = _channels(connection, events)
    times = [to_micros(event.time) for event in events]
    placed = allocate_ids(connection, times, CLOCK if live else LATE)
    rows = [
        values(event, event_id, channels[event.network, log_index.fold_name(event.channel)], time)
        for event, event_id, time in zip(events, placed.ids, times, strict=True)
    ]
    connection.insert_rows("events", rows)
    log_index.add_events(connection, rows, private, placed.drift)
    _note_arrivals(connection, placed.ids if live else placed.current)
    return placed.ids


def _note_arrivals(connection: Connection, ids: Sequence[int]) -> None:
    """Note events in the order in which they came, for those who follow the log."""
    connection.insert_rows("arrivals (event_id)", [[each] for each in ids])
    connection.execute(_TRIM, [ARRIVALS, _TRIMMED])


def _channels(
    connection: Connection, events: Sequence[Event]
) -> tuple[dict[tuple[str, str], int], set[int]]:
    """Return the ids of all channels by network and folded name, and those that are private; new
    channels of `events` are added."""
    names = {(event.network, event.channel) for event in events}
    ids, private = _known_channels(connection)
    new = [name for name in names if (name[0], log_index.fold_name(name[1])) not in ids]
    if new:
        connection.executemany(_CHANNEL, [(*name, is_private(name[1])) for name in new])
        ids, private = _known_channels(connection)
    return ids, private


def _known_channels(connection: Connection) -> tuple[dict[tuple[str, str], int], set[int]]:
    rows = connection.execute(_CHANNELS).fetchall()
    ids = {(row[1], log_index.fold_name(row[2])): row[0] for row in rows}
    return ids, {row[0] for row in rows if row[3]}


def values(event: Event, event_id: int, channel_id: int, time: int) -> tuple[Any, ...]:
    """Return the columns of a `storable` event, in order; `time` is in microseconds."""
    return (
        event_id,
        channel_id,
        event.type.value,
        time,
        event.nick,
        event.user,
        event.host,
        event.account,
        event.target,
        event.text,
        event.msgid,
        event.own,
        event.reply_to,
    )


def storable(event: Event) -> Event:
    """Return the event without lone surrogates, which UTF-8 cannot carry: each is a `?`."""
    names = (event.network, event.channel, event.nick, event.user, event.host, event.target)
    words = "".join((*names, event.account or "", event.msgid or "", event.text))
    if words.isascii() or not _LONE_SURROGATE.search(words):
        return event
    return replace(
        event,
        network=_whole(event.network),
        channel=_whole(event.channel),
        nick=_whole(event.nick),
        user=_whole(event.user),
        host=_whole(event.host),
        account=None if event.account is None else _whole(event.account),
        target=_whole(event.target),
        text=_whole(event.text),
        msgid=None if event.msgid is None else _whole(event.msgid),
    )


def _whole(text: str) -> str:
    return _LONE_SURROGATE.sub("?", text)


def event_of(row: Row | tuple[Any, ...], channel: Row) -> Event:
    """Return the event of a row and of its row in `channels`."""
    return _event_of(tuple(row), channel["network"], channel["name"])


@lru_cache(_CACHED)
def _event_of(row: tuple[Any, ...], network: str, channel: str) -> Event:
    id, _, type, time, nick, user, host, account, target, text, msgid, own, reply_to = row
    return Event(
        id=id,
        network=network,
        channel=channel,
        type=_TYPES[type],
        time=from_micros(time),
        nick=nick,
        user=user,
        host=host,
        account=account,
        target=target,
        text=text,
        msgid=msgid,
        own=bool(own),
        reply_to=reply_to,
    )


@dataclass(frozen=True, slots=True)
class AllocatedIds:
    """Ids for a batch, in its order; those that are no history; the most that one is ahead of its
    time."""

    ids: Sequence[int]
    current: Sequence[int]
    drift: int


def allocate_ids(connection: Connection, times: Sequence[int], late: int = LATE) -> AllocatedIds:
    """Return ids for events with these times (microseconds), in the transaction that stores them.

    An event that is more than `late` milliseconds older than the newest one is history.
    """
    newest = int(connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0])
    wanted = [max(1, time // 1000) for time in times]
    ids: list[int] = []
    history: list[int] = []  # positions of those that go back in time
    for position, begin in enumerate(wanted):
        if begin < newest - late:
            history.append(position)
            ids.append(0)
        else:
            newest = max(begin, newest + 1)
            ids.append(newest)
    current = [found for found in ids if found]
    if history:
        free = _FreeIds(connection, set(ids))
        for position, found in zip(
            history, free.after([wanted[position] for position in history]), strict=True
        ):
            ids[position] = found
    drift = max((found - begin for found, begin in zip(ids, wanted, strict=True)), default=0)
    return AllocatedIds(ids, current, drift)


class _FreeIds:
    """Free ids among those of the file and of the batch."""

    def __init__(self, connection: Connection, taken: set[int]) -> None:
        self._connection = connection
        self._taken = taken

    def after(self, begins: Sequence[int]) -> Sequence[int]:
        """Return the first free id from each of `begins` on; for equal ones they grow."""
        # Which ids are taken is read from the file for a range behind each begin at once; where a
        # candidate runs out of its range, a range of twice the width is read behind it.
        near = _NEAR
        next_of = {begin: begin for begin in begins}
        found: list[int] = []
        known = self._load_taken(next_of.values(), near)
        for begin in begins:
            candidate = next_of[begin]
            while True:
                while candidate in self._taken:
                    candidate += 1
                if candidate <= known[begin]:
                    break
                near *= 2
                known[begin] = (self._load_taken([candidate], near))[candidate]
            self._taken.add(candidate)
            next_of[begin] = candidate + 1
            found.append(candidate)
        return found

    def _load_taken(self, begins: Collection[int], near: int) -> dict[int, int]:
        """Read which ids are taken behind each of `begins`; return up to where that is known."""
        starts = sorted(begins)
        rows = self._connection.execute(_TAKEN, [json.dumps(starts), near])
        self._taken.update(row[0] for row in rows)
        return {start: start + near for start in starts}
