"""Search by meaning: a vector for each line that people said, compared with a question's.

The vectors are float32 of length one in the log's own file, so that a removed event takes its
vector along. A search compares the newest first, a block at a time, until its time is over; it says
how far back it came. Vectors are made in the background (llm/tools/semantic_search.py), so some may
be missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from typing import Any

from storage.chat_log import query as log_query
from storage.chat_log.event_table import event_of
from storage.chat_log.query import Query
from storage.connection import Dialect
from storage.db.database import Connection, Database, Row, from_micros
from storage.db.errors import Unavailable
from storage.search.models import Hit, MatchSnippet, SearchPage

SHORTEST = 12  # characters of a line that means something by itself
_BLOCK = 8_192  # vectors compared at once: 12 MiB
_BUDGET = 0.4  # seconds that a search may compare
_WANTED = f"events.type IN ('PRIVMSG', 'ACTION') AND own = 0 AND length(text) >= {SHORTEST}"


class VectorIndex:
    """The vectors in the database file of a log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def use_model(self, name: str) -> None:
        """Say which model the vectors are of; those of another one are dropped."""
        row = await self._database.fetch_one("SELECT name FROM vector_model")
        if row and row["name"] == name:
            return
        async with self._database.transaction() as db:
            await db.execute("DELETE FROM vectors")
            await db.execute("DELETE FROM vector_model")
            await db.execute("INSERT INTO vector_model VALUES (?, 0)", [name])

    async def model(self) -> str | None:
        """Return the model that the vectors are of, None while there are none."""
        row = await self._database.fetch_one("SELECT name FROM vector_model")
        return str(row["name"]) if row else None

    async def missing(self, after: int, before: int, limit: int) -> list[tuple[int, str]]:
        """Return ids and texts of the newest lines between two ids that have no vector yet."""
        sql = (
            f"SELECT id, text FROM events WHERE id > ? AND id < ? AND {_WANTED} AND NOT EXISTS"
            " (SELECT 1 FROM vectors WHERE event_id = id) ORDER BY id DESC LIMIT ?"
        )
        rows = await self._database.read(
            lambda db: db.execute(sql, [after, before, limit]).fetchall()
        )
        return [(row["id"], row["text"]) for row in rows]

    async def add(self, vectors: Mapping[int, Sequence[float]]) -> None:
        """Keep the vectors of lines, by id; a line that is gone meanwhile gets none."""
        np = numpy()
        rows = []
        for event_id, vector in vectors.items():
            whole = np.asarray(vector, dtype=np.float32)
            rows.append([(whole / (np.linalg.norm(whole) or 1)).tobytes(), event_id])
        async with self._database.transaction() as db:
            await db.executemany(
                "INSERT INTO vectors (vector, event_id)"
                " SELECT ?, id FROM events WHERE id = ?"
                " ON CONFLICT (event_id) DO UPDATE SET vector = excluded.vector",
                rows,
            )

    async def reached_the_end(self) -> None:
        """Say that every line has its vector, but for those that come or are imported now."""
        async with self._database.transaction() as db:
            await db.execute("UPDATE vector_model SET complete = 1")

    async def nearest(self, vector: Sequence[float], query: Query) -> SearchPage:
        """Return the lines that fit `query` and are nearest to `vector`, best first: `query.limit`
        at most, on one page. Its `searched_back_to` is set when older lines were not compared, for
        want of time or because they have no vector yet."""
        return await self._database.read(lambda db: _nearest(db, vector, query))


def numpy() -> Any:
    """Return the library that compares vectors. Raises Unavailable with the way to get it."""
    try:
        import numpy as np
    except ImportError as error:
        raise Unavailable(
            "search by meaning needs the extra: pip install 'terrarium[semantic]'"
        ) from error
    return np


def _nearest(connection: Connection, vector: Sequence[float], query: Query) -> SearchPage:
    np = numpy()
    asked = np.asarray(vector, dtype=np.float32)
    asked = asked / (np.linalg.norm(asked) or 1)
    channels = log_query.channels_in(connection, query)
    best: list[tuple[float, int]] = []
    last, deadline = None, time.monotonic() + _BUDGET
    for block in _blocks(connection, query, channels):
        fitting = [row for row in block if len(row["vector"]) == asked.nbytes]
        if fitting:
            matrix = np.frombuffer(b"".join(row["vector"] for row in fitting), dtype=np.float32)
            scores = matrix.reshape(len(fitting), -1) @ asked
            ids = [row["event_id"] for row in fitting]
            found = zip(map(float, scores), ids, strict=True)
            best = nlargest(query.limit, [*best, *found])
        if len(block) == _BLOCK and time.monotonic() > deadline:
            last = block[-1]["event_id"]
            break
    hits = _hits(connection, best, channels)
    reached = _searched_back_to(connection, last)
    return SearchPage(hits, count=len(hits), searched_back_to=reached)


def _blocks(
    connection: Connection, query: Query, channels: log_query.VisibleChannels
) -> Iterator[Sequence[Row]]:
    """The vectors of the lines that fit, newest first."""
    where, values = log_query.conditions(connection, query)
    if channels.others:
        marks = ", ".join("?" for _ in channels.rows) or "NULL"
        where, values = f"{where} AND channel_id IN ({marks})", [*values, *channels.rows]
    # In SQLite a CROSS JOIN is also an order: a vector first, and then its event.
    join = "CROSS JOIN" if connection.dialect is Dialect.SQLITE else "JOIN"
    rows = connection.execute(
        f"SELECT event_id, vector FROM vectors {join} events ON id = event_id"
        f" WHERE {where} ORDER BY event_id DESC",
        values,
    )
    while block := rows.fetchmany(_BLOCK):
        yield block


def _hits(
    connection: Connection,
    best: Sequence[tuple[float, int]],
    channels: log_query.VisibleChannels,
) -> tuple[Hit, ...]:
    hits = []
    for _, event_id in best:
        row = connection.execute("SELECT * FROM events WHERE id = ?", [event_id]).fetchone()
        event = event_of(row, channels.rows[row["channel_id"]])
        hits.append(Hit(event, MatchSnippet(event.text)))
    return tuple(hits)


def _searched_back_to(connection: Connection, last: int | None) -> datetime | None:
    """Return how far back was compared: to the event `last`, or else as far as there are
    vectors."""
    if last is None and not _complete(connection):
        last = connection.execute("SELECT min(event_id) FROM vectors").fetchone()[0]
    if last is None:
        return None
    row = connection.execute("SELECT time FROM events WHERE id = ?", [last]).fetchone()
    return from_micros(row["time"])


def _complete(connection: Connection) -> bool:
    row = connection.execute("SELECT complete FROM vector_model").fetchone()
    return row is not None and bool(row["complete"])
