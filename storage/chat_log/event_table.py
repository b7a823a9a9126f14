"""The table `events`: rows, the allocation of ids, and insertion.

Ids follow time: the id of an event is its time in milliseconds since 1970, or the next free number.
So one order serves for reading, for searching newest first and for finding a time, and history that
is imported years later is sorted in.

Live readers use `storage.chat_log.arrivals`. Other readers may ask for the events after the last id
that they saw, and must not miss any either. So an event that is older than the newest one still
gets an id after it, if it is older by at most `MAX_DELAY_MS`, or by `MAX_CLOCK_LAG_MS` if it is
said now (a server's clock may have been set back). Only older events, which are history, get an id
in the past. An id is therefore never before its event's time and seldom much after it;
`AllocatedIds.drift` is the largest difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from storage import log_index
from storage.chat_log import quotes
from storage.chat_log.event import Event, EventType, is_private
from storage.db.database import Connection, Row, from_micros, to_micros

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
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_CACHED_EVENTS = 512  # events in the cache: a prompt repeats most lines of the one before
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
    placed = allocate_ids(connection, times, MAX_CLOCK_LAG_MS if live else MAX_DELAY_MS)
    rows = [
        values(event, event_id, channels[event.network, log_index.fold_name(event.channel)], time)
        for event, event_id, time in zip(events, placed.ids, times, strict=True)
    ]
    connection.insert_rows("events", rows)
    log_index.add_events(connection, rows, private, placed.drift)
    arrived = placed.ids if live else placed.current
    connection.insert_rows("arrivals (event_id)", [[each] for each in arrived])
    connection.execute(_TRIM, [KEPT_ARRIVALS, _TRIM_STEP])
    for event, event_id in zip(events, placed.ids, strict=True):
        if event.quotes:
            quotes.add(connection, event_id, event.quotes)
    return placed.ids


def _known_channels(connection: Connection) -> tuple[dict[tuple[str, str], int], set[int]]:
    rows = connection.execute(_CHANNELS).fetchall()
    ids = {(row[1], log_index.fold_name(row[2])): row[0] for row in rows}
    return ids, {row[0] for row in rows if row[3]}


def values(event: Event, event_id: int, channel_id: int, time: int) -> tuple[Any, ...]:
    """Return the column values of a `storable` event, in order; `time` is in microseconds."""
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
    """Return the event with each lone surrogate, which UTF-8 cannot encode, replaced by `?`."""
    # A single check of all fields together, because almost no event has any.
    names = (event.network, event.channel, event.nick, event.user, event.host, event.target)
    words = "".join((*names, event.account or "", event.msgid or "", event.text))
    if words.isascii() or not _LONE_SURROGATE.search(words):
        return event
    return replace(
        event,
        network=_replace_surrogates(event.network),
        channel=_replace_surrogates(event.channel),
        nick=_replace_surrogates(event.nick),
        user=_replace_surrogates(event.user),
        host=_replace_surrogates(event.host),
        account=None if event.account is None else _replace_surrogates(event.account),
        target=_replace_surrogates(event.target),
        text=_replace_surrogates(event.text),
        msgid=None if event.msgid is None else _replace_surrogates(event.msgid),
    )


def _replace_surrogates(text: str) -> str:
    return _LONE_SURROGATE.sub("?", text)


def event_of(row: Row | tuple[Any, ...], channel: Row) -> Event:
    """Return the event of a row of `events` and the row of its channel."""
    return _event_of(tuple(row), channel["network"], channel["name"])


@lru_cache(_MAX_CACHED_EVENTS)
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
    """Ids of a batch of events, in its order.

    `current` are the ids of events that are not history; `drift` is the largest lead of an id over
    its event's time, in milliseconds.
    """

    ids: Sequence[int]
    current: Sequence[int]
    drift: int


def allocate_ids(
    connection: Connection, times: Sequence[int], late: int = MAX_DELAY_MS
) -> AllocatedIds:
    """Return ids for events with these times (in microseconds), in the transaction that stores
    them.

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
    if history:
        free = _FreeIds(connection, set(ids))
        for position, found in zip(
            history, free.after([wanted[position] for position in history]), strict=True
        ):
            ids[position] = found
    drift = max((found - begin for found, begin in zip(ids, wanted, strict=True)), default=0)
    return AllocatedIds(ids, current, drift)


class _FreeIds:
    """Finds ids that are taken neither in the database nor by the batch itself."""

    def __init__(self, connection: Connection, taken: set[int]) -> None:
        self._connection = connection
        self._taken = taken

    def after(self, begins: Sequence[int]) -> Sequence[int]:
        """Return, for each of `begins`, the first free id at or after it; equal ones get ascending
        ids."""
        # One query reads which ids are taken within `near` of every begin. A candidate that leaves
        # its range causes another query, for a range of twice the width, from there on.
        near = _ID_SEARCH_WIDTH
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
        """Read which ids are taken from each of `begins` on; return the last id that is covered, by
        begin."""
        starts = sorted(begins)
        rows = self._connection.execute(_TAKEN_IDS, [json.dumps(starts), near])
        self._taken.update(row[0] for row in rows)
        return {start: start + near for start in starts}
