"""The append-only log of what was said: one writer in order, scoped reading.

Whoever reads names a `Scope`, and `_visible` is the one place where a scope becomes SQL.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import aiosqlite
import structlog

from storage.database import Database, Row, from_micros, to_micros
from storage.errors import Unavailable
from storage.event import Event, EventType, Place, Scope

_BATCH = 500
_RETRY = 1.0  # seconds until a batch that could not be written is tried again
_LAST = 3.0  # seconds that the last batches have to be written
_SPOKEN = "events.type IN ('PRIVMSG', 'NOTICE', 'ACTION')"
_SELECT = "SELECT events.*, network, name, private FROM events JOIN channels c ON c.id = channel_id"
_INSERT = """
INSERT INTO events VALUES (:id, (SELECT id FROM channels WHERE network = :network AND name = :name),
    :type, :time, :nick, :user, :host, :account, :target, :text, :msgid, :own, :reply_to)
"""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which events to read: every field narrows. Times are aware; `before_id` and `after_id`
    leave out the event they name; `text` is words that must all occur."""

    scope: Scope
    network: str | None = None
    channel: str | None = None
    nick: str | None = None
    types: frozenset[EventType] | None = None
    own: bool | None = None
    since: datetime | None = None
    until: datetime | None = None
    before_id: int | None = None
    after_id: int | None = None
    text: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Channel:
    """A place in the log with the number and time of its events."""

    place: Place
    private: bool
    events: int
    last_time: datetime | None


@dataclass(frozen=True, slots=True)
class Stats:
    """Totals of spoken lines: all, people, first and last time, and the most talkative."""

    lines: int
    people: int
    first: datetime | None
    last: datetime | None
    top: tuple[tuple[str, int], ...]


class ChatLog:
    """The log in a database file. `opened` starts the writer that `append` needs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: asyncio.Queue[tuple[Event, asyncio.Future[int]]] = asyncio.Queue()

    @classmethod
    @asynccontextmanager
    async def opened(cls, database: Database) -> AsyncIterator[ChatLog]:
        """A log that can be written; on leaving, all that was appended has been stored."""
        log = cls(database)
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(log._write_for_ever())
            try:
                yield log
            finally:
                await log._drain(writer)
                writer.cancel()

    def append(self, event: Event) -> asyncio.Future[int]:
        """Put an event in line to be stored and return at once; the future is its durable id."""
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((event, stored))
        return stored

    async def find(self, query: Query, *, newest: bool = True) -> list[Event]:
        """The newest (or oldest) events that fit `query`, in order of time either way."""
        where, values = await self._conditions(query)
        order = "DESC" if newest else "ASC"
        rows = await self._database.all(
            f"{_SELECT} WHERE {where} ORDER BY events.id {order} LIMIT ?",
            [*values, query.limit],
        )
        return [_event(row) for row in (reversed(rows) if newest else rows)]

    async def get(self, scope: Scope, event_id: int) -> Event | None:
        """One event, if it exists and may be seen."""
        query = Query(scope=scope, after_id=event_id - 1, before_id=event_id + 1, limit=1)
        found = await self.find(query)
        return found[0] if found else None

    async def channels(self, scope: Scope) -> list[Channel]:
        """The places in scope, the most recently active first."""
        visible, values = _visible(scope)
        rows = await self._database.all(
            "SELECT network, name, private,"
            " (SELECT count(*) FROM events WHERE channel_id = c.id) AS n,"
            " (SELECT time FROM events WHERE channel_id = c.id ORDER BY id DESC LIMIT 1) AS last"
            f" FROM channels c WHERE {visible} ORDER BY last DESC",
            values,
        )
        return [
            Channel(Place(r["network"], r["name"]), bool(r["private"]), r["n"], _time(r["last"]))
            for r in rows
        ]

    async def stats(self, query: Query, top: int = 5) -> Stats:
        """Counts of the spoken lines that fit `query`."""
        where, values = await self._conditions(query)
        source = f"FROM events JOIN channels c ON c.id = channel_id WHERE {where} AND {_SPOKEN}"
        total = await self._database.one(
            "SELECT count(*) AS n, count(DISTINCT nick) AS people, min(time) AS first,"
            f" max(time) AS last {source}",
            values,
        )
        speakers = await self._database.all(
            f"SELECT nick, count(*) AS n {source} GROUP BY nick ORDER BY n DESC LIMIT ?",
            [*values, top],
        )
        assert total is not None  # an aggregate always has one row
        return Stats(
            lines=total["n"],
            people=total["people"],
            first=_time(total["first"]),
            last=_time(total["last"]),
            top=tuple((row["nick"], row["n"]) for row in speakers),
        )

    async def _conditions(self, query: Query) -> tuple[str, list[Any]]:
        """The WHERE clause of a query and its values."""
        visible, values = _visible(query.scope)
        parts = [visible]
        for sql, value in _narrowing(query):
            if value is not None:
                parts.append(sql)
                values.append(value)
        if query.types is not None:
            parts.append(f"events.type IN ({_marks(query.types)})")
            values.extend(sorted(query.types))
        return " AND ".join(parts), values

    async def _write_for_ever(self) -> None:
        """Store what is in line: while one batch is being committed the next one gathers."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            ids = await self._stored([event for event, _ in batch])
            for (_, stored), event_id in zip(batch, ids, strict=True):
                if not stored.cancelled():
                    stored.set_result(event_id)
                self._queue.task_done()

    async def _drain(self, writer: asyncio.Task[None]) -> None:
        """Let the writer finish, unless it has failed or cannot write."""
        drained = asyncio.ensure_future(self._queue.join())
        await asyncio.wait({drained, writer}, timeout=_LAST, return_when="FIRST_COMPLETED")
        if not drained.done():
            drained.cancel()
            _log.error("log.lines_lost", lines=self._queue.qsize())

    async def _stored(self, events: Sequence[Event]) -> range:
        """Store a batch, however often it takes: a full disk must not lose a line."""
        while True:
            try:
                async with self._database.transaction() as connection:
                    return await insert(connection, events)
            except Unavailable as error:
                _log.error("log.write_failed", error=str(error), waiting=len(events))
                await asyncio.sleep(_RETRY)


async def insert(connection: aiosqlite.Connection, events: Sequence[Event]) -> range:
    """Store events inside the transaction of `connection`; their ids."""
    places = {(event.network, event.channel, event.private) for event in events}
    await connection.executemany("INSERT OR IGNORE INTO channels VALUES (NULL, ?, ?, ?)", places)
    async with connection.execute("SELECT coalesce(max(id), 0) FROM events") as cursor:
        row = await cursor.fetchone()
    first = (int(row[0]) if row else 0) + 1
    ids = range(first, first + len(events))
    rows = [_values(event, event_id) for event, event_id in zip(events, ids, strict=True)]
    await connection.executemany(_INSERT, rows)
    return ids


def _visible(scope: Scope) -> tuple[str, list[Any]]:
    """The condition that keeps a reader inside a scope: the only one there is."""
    if scope.places is None:
        return "TRUE" if scope.private else "NOT c.private", []
    if not scope.places:
        return "FALSE", []
    pairs = ", ".join("(?, ?)" for _ in scope.places)
    values = [part for place in scope.places for part in (place.network, place.channel)]
    ids = f"SELECT v.id FROM channels v WHERE (v.network, v.name) IN (VALUES {pairs})"
    return f"c.id IN ({ids})", values


def _narrowing(query: Query) -> Sequence[tuple[str, Any]]:
    """Each simple condition with its value, None where the query does not ask for it."""
    found = "events.id IN (SELECT rowid FROM events_text WHERE events_text MATCH ?)"
    return (
        ("c.network = ?", query.network),
        ("c.name = ?", query.channel),
        ("events.nick = ?", query.nick),
        ("events.own = ?", query.own),
        ("events.time >= ?", query.since and to_micros(query.since)),
        ("events.time < ?", query.until and to_micros(query.until)),
        ("events.id < ?", query.before_id),
        ("events.id > ?", query.after_id),
        (found, None if query.text is None else match_all(query.text)),
    )


def match_all(text: str) -> str:
    """An FTS5 query for lines that have every word of `text`: quoted, so that nothing that
    people type can be an operator or a syntax error."""
    words = re.findall(r"\w+", text)
    return " ".join(f'"{word}"' for word in words) or '""'


def _marks(values: frozenset[EventType]) -> str:
    return ", ".join("?" for _ in values)


def _values(event: Event, event_id: int) -> dict[str, Any]:
    return {
        "id": event_id,
        "network": event.network,
        "name": event.channel,
        "type": event.type.value,
        "time": to_micros(event.time),
        "nick": event.nick,
        "user": event.user,
        "host": event.host,
        "account": event.account,
        "target": event.target,
        "text": storable(event.text),
        "msgid": event.msgid,
        "own": event.own,
        "reply_to": event.reply_to,
    }


def storable(text: str) -> str:
    """`text` without halves of surrogate pairs, which UTF-8 cannot carry."""
    return text.encode("utf-8", "replace").decode()


def _event(row: Row) -> Event:
    return Event(
        id=row["id"],
        network=row["network"],
        channel=row["name"],
        private=bool(row["private"]),
        type=EventType(row["type"]),
        time=from_micros(row["time"]),
        nick=row["nick"],
        user=row["user"],
        host=row["host"],
        account=row["account"],
        target=row["target"],
        text=row["text"],
        msgid=row["msgid"],
        own=bool(row["own"]),
        reply_to=row["reply_to"],
    )


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
