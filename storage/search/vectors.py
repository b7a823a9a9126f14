"""Semantic search: an embedding vector for each line that people said, compared with a query's.

The vectors are unit vectors of float32 in the log's own file, where a foreign key removes them with
their events. A search compares the newest first, a block at a time, until its time is over, and
reports how far back it came. Vectors are computed in the background
(llm/tools/semantic_search.py), so some may be missing.
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

MIN_TEXT_LENGTH = 12  # characters of a line that has a vector: a shorter one means little by itself
_VECTORS_PER_BLOCK = 8_192  # vectors compared at once: 12 MiB if they have 384 dimensions
_TIME_BUDGET = 0.4  # seconds after which a search stops
_WANTED = f"events.type IN ('PRIVMSG', 'ACTION') AND own = 0 AND length(text) >= {MIN_TEXT_LENGTH}"


class VectorIndex:
    """The vectors in the database file of a log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def use_model(self, name: str) -> None:
        """Set the model that the vectors are made by; those of another model are deleted."""
        row = await self._database.fetch_one("SELECT name FROM vector_model")
        if row and row["name"] == name:
            return
        async with self._database.transaction() as db:
            await db.execute("DELETE FROM vectors")
            await db.execute("DELETE FROM vector_model")
            await db.execute("INSERT INTO vector_model VALUES (?, 0)", [name])

    async def model(self) -> str | None:
        """Return the model that the vectors are made by, None before the first `use_model`."""
        row = await self._database.fetch_one("SELECT name FROM vector_model")
        return str(row["name"]) if row else None

    async def missing(self, after: int, before: int, limit: int) -> list[tuple[int, str]]:
        """Return ids and texts of the newest `limit` lines that have no vector yet, newest first,
        with ids greater than `after` and less than `before`."""
        sql = (
            f"SELECT id, text FROM events WHERE id > ? AND id < ? AND {_WANTED} AND NOT EXISTS"
            " (SELECT 1 FROM vectors WHERE event_id = id) ORDER BY id DESC LIMIT ?"
        )
        rows = await self._database.read(
            lambda db: db.execute(sql, [after, before, limit]).fetchall()
        )
        return [(row["id"], row["text"]) for row in rows]

    async def add(self, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store the vectors of lines by id, scaled to length one. A line that was deleted in the
        meantime is left out."""
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

    async def mark_backfill_complete(self) -> None:
        """Record that the backfill is complete: every line has its vector, except for new and newly
        imported ones."""
        async with self._database.transaction() as db:
            await db.execute("UPDATE vector_model SET complete = 1")

    async def nearest(self, vector: Sequence[float], query: Query) -> SearchPage:
        """Return the lines within `query` that are nearest to `vector`, best first, as one page of
        at most `query.limit`. Its `searched_back_to` is set if older lines were not compared, for
        lack of time or of vectors."""
        return await self._database.read(lambda db: _nearest(db, vector, query))


def numpy() -> Any:
    """Return the module numpy. Raises Unavailable, with the command to install it."""
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
    last, deadline = None, time.monotonic() + _TIME_BUDGET
    for block in _blocks(connection, query, channels):
        # A vector of another length is of another model than the query's.
        fitting = [row for row in block if len(row["vector"]) == asked.nbytes]
        if fitting:
            matrix = np.frombuffer(b"".join(row["vector"] for row in fitting), dtype=np.float32)
            scores = matrix.reshape(len(fitting), -1) @ asked
            ids = [row["event_id"] for row in fitting]
            found = zip(map(float, scores), ids, strict=True)
            best = nlargest(query.limit, [*best, *found])
        # A block that is not full is the last one: then all lines have been compared.
        if len(block) == _VECTORS_PER_BLOCK and time.monotonic() > deadline:
            last = block[-1]["event_id"]
            break
    hits = _hits(connection, best, channels)
    reached = _searched_back_to(connection, last)
    return SearchPage(hits, count=len(hits), searched_back_to=reached)


def _blocks(
    connection: Connection, query: Query, channels: log_query.VisibleChannels
) -> Iterator[Sequence[Row]]:
    """Yield ids and vectors of the lines within `query`, newest first, in blocks."""
    where, values = log_query.conditions(connection, query)
    # The scope: only if it has all channels no condition is needed.
    if channels.others:
        marks = ", ".join("?" for _ in channels.rows) or "NULL"
        where, values = f"{where} AND channel_id IN ({marks})", [*values, *channels.rows]
    # SQLite never reorders a CROSS JOIN: it reads the vectors by id, and looks up their events.
    join = "CROSS JOIN" if connection.dialect is Dialect.SQLITE else "JOIN"
    rows = connection.execute(
        f"SELECT event_id, vector FROM vectors {join} events ON id = event_id"
        f" WHERE {where} ORDER BY event_id DESC",
        values,
    )
    while block := rows.fetchmany(_VECTORS_PER_BLOCK):
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
    """Return the time down to which lines were compared, None if all of them were: that of the
    event `last`, else of the oldest vector while the backfill is incomplete."""
    if last is None and not _complete(connection):
        last = connection.execute("SELECT min(event_id) FROM vectors").fetchone()[0]
    if last is None:
        return None
    row = connection.execute("SELECT time FROM events WHERE id = ?", [last]).fetchone()
    return from_micros(row["time"])


def _complete(connection: Connection) -> bool:
    row = connection.execute("SELECT complete FROM vector_model").fetchone()
    return row is not None and bool(row["complete"])
