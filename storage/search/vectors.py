"""Semantic search: embedding vectors for each recent line that people said, compared with the
question's: one of the line alone, and one of it after the line before, without which "gordon has
it" means little.

All embeddings point in nearly the same direction, so of each the difference from the mean of all
lines is kept, scaled to length one, in a byte for each number; before them stand the signs, a bit
each. Lines are first compared by the number of equal signs, which takes less than a microsecond,
and only the best by the cosine. Vectors are computed in the background (llm/retrieval.py), so some
may be missing; a foreign key removes them with their events.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from heapq import nlargest, nsmallest
from operator import mul
from pathlib import Path

from storage.chat_log import event_table
from storage.chat_log.event import Event
from storage.chat_log.event_table import Query, event_of
from storage.chat_log.opt_outs import rules
from storage.connection import GIVEN, Connection
from storage.db.database import Repository, reads, writes
from storage.search.models import Hit, MatchSnippet, SearchPage
from storage.search.planner import LineConditions
from storage.search.query_parser import ParsedQuery

MODEL = "multilingual-e5-small"
"""The embedding model of all vectors, the agent server's own."""
DIMENSIONS = 384
MEAN = Path(__file__).with_name("mean.json")
"""The mean vector of lines of a log, written by `benchmarks/passages_fit.py`."""

RECENT_LINES = 1_000
"""The newest lines of each channel that get a vector."""
_MIN_TEXT_LENGTH = 8  # characters of a line below which it means little by itself

MAX_TEXT_LENGTH = 240
"""Characters of a line that are embedded."""

_TALK = timedelta(hours=1)  # within which a line belongs to the one before it
_FORMAT = f"{MODEL}, signs and bytes"
_SIGNS = DIMENSIONS // 8  # bytes
_SCALE = 400  # of a number in a byte; few of a vector of length one are greater than 0.3
_MAX_COMPARED = 20_000  # newest lines that a question is compared with
_MAX_OF_CHANNEL = 4_000  # of each channel
_LEAST_SHARE = 0.8  # of the likeness of the nearest line, which those beside it have
_SPOKEN = "type IN ('PRIVMSG', 'ACTION') AND own = 0"
_BEFORE = f"""
SELECT * FROM events WHERE channel_id = ? AND {_SPOKEN} AND id < ? ORDER BY id DESC LIMIT 1"""
_NEWEST = f"""
SELECT * FROM (SELECT * FROM events
    WHERE channel_id = ? AND {_SPOKEN} ORDER BY id DESC LIMIT {RECENT_LINES}) AS newest
WHERE id > ? AND length(text) > 0
    AND NOT EXISTS (SELECT 1 FROM vectors WHERE event_id = id)"""


def encode(vector: Sequence[float]) -> bytes:
    """Return the stored form of the embedding of a line or a question."""
    centred = [value - mean for value, mean in zip(vector, _mean(), strict=True)]
    length = math.hypot(*centred) or 1.0
    numbers = [max(-127, min(127, round(_SCALE * value / length))) for value in centred]
    signs = sum((number > 0) << place for place, number in enumerate(numbers))
    return signs.to_bytes(_SIGNS, "little") + array("b", numbers).tobytes()


def likeness(one: bytes, other: bytes) -> float:
    """Return the cosine of two stored vectors."""
    product: int = sum(
        map(mul, memoryview(one)[_SIGNS:].cast("b"), memoryview(other)[_SIGNS:].cast("b"))
    )
    return product / (_SCALE * _SCALE)


@cache
def _mean() -> Sequence[float]:
    found: list[float] = json.loads(MEAN.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True, slots=True)
class LineText:
    """The texts of a line that has no vectors yet: alone, and after the line `before_id` that it
    follows, "" if it follows none. A short line has only the latter, as `text`."""

    id: int
    text: str
    before_id: int | None = None
    in_talk: str = ""

    @classmethod
    def from_events(cls, event: Event, before: Event | None) -> LineText:
        """Return the texts of an event; `before` is what was said before it, if anything."""
        text = event.text[:MAX_TEXT_LENGTH]
        if before is None or event.time - before.time > _TALK:
            return cls(event.id, text)
        in_talk = f"{before.nick}: {before.text[:MAX_TEXT_LENGTH]} / {event.nick}: {text}"
        if len(text) < _MIN_TEXT_LENGTH:
            return cls(event.id, in_talk, before.id)
        return cls(event.id, text, before.id, in_talk)


@dataclass(frozen=True, slots=True)
class Likeness:
    """The cosines of the vectors of a question and a line, alone and `in_talk`."""

    alone: float
    in_talk: float


class LineVectors:
    """The vectors of lines, compared with the embedding `vector` of a question."""

    def __init__(self, connection: Connection, vector: Sequence[float]) -> None:
        self._connection = connection
        self._asked = encode(vector)

    def nearest(self, conditions: LineConditions, most: int) -> list[int]:
        """Return the ids of those lines within conditions that are probably nearest, best first."""
        asked = int.from_bytes(self._asked[:_SIGNS], "little")
        where, values = event_table.conditions(self._connection, conditions.query)
        channels = conditions.channels.rows
        most_of_each = min(_MAX_OF_CHANNEL, _MAX_COMPARED // (len(channels) or 1))
        sql = (
            "SELECT event_id, vector, in_talk FROM (SELECT id FROM events"
            f" WHERE channel_id = ? AND {where} ORDER BY id DESC LIMIT {most_of_each}) AS newest"
            " JOIN vectors ON event_id = newest.id"
        )
        differences = (
            ((int.from_bytes(vector[:_SIGNS], "little") ^ asked).bit_count(), event_id)
            for channel in channels
            for event_id, *both in self._connection.execute(sql, [channel, *values])
            for vector in both
            if vector
        )
        # A line may be near by both of its vectors.
        near = nsmallest(2 * most, differences)
        return list(dict.fromkeys(event_id for _, event_id in near))[:most]

    def likeness(self, ids: Sequence[int]) -> dict[int, Likeness]:
        """Return the likeness of lines to the question by id, without those that have no vector."""
        sql = f"SELECT event_id, vector, in_talk FROM vectors WHERE event_id IN {GIVEN}"
        rows = self._connection.execute(sql, [json.dumps(list(ids))])
        return {
            event_id: Likeness(
                likeness(self._asked, vector), likeness(self._asked, in_talk or vector)
            )
            for event_id, vector, in_talk in rows
        }


def find_near(connection: Connection, vector: Sequence[float], within: Query) -> SearchPage:
    """Return the line of people within a query that is nearest to an embedding of a question, and
    those that are hardly less so, best first, without those of people who have opted out; only
    newer lines have vectors."""
    conditions = LineConditions(connection, replace(within, own=False), ParsedQuery())
    vectors = LineVectors(connection, vector)
    found = vectors.likeness(vectors.nearest(conditions, 2 * within.limit))
    near = {event_id: each.alone for event_id, each in found.items()}
    hides, hits = rules(connection).hides, []
    least = _LEAST_SHARE * max(near.values(), default=0.0)
    for event_id in sorted((each for each in near if near[each] >= least), key=lambda i: -near[i]):
        row = connection.execute("SELECT * FROM events WHERE id = ?", [event_id]).fetchone()
        event = event_of(row, conditions.channels.rows[row["channel_id"]])
        if not hides(event):
            hits.append(Hit(event, MatchSnippet(event.text)))
    return SearchPage(tuple(hits[: within.limit]), count=min(len(hits), within.limit))


class VectorIndex(Repository):
    """The vectors in the database file of a log."""

    @writes
    def open(self, db: Connection) -> None:
        """Delete the vectors of another model, or in another format."""
        row = db.execute("SELECT name FROM vector_model").fetchone()
        if row is None or row["name"] != _FORMAT:
            db.execute("DELETE FROM vectors")
            db.execute("DELETE FROM vector_model")
            db.execute("INSERT INTO vector_model VALUES (?, 0)", [_FORMAT])

    @reads
    def missing(self, db: Connection, after: int, limit: int) -> list[LineText]:
        """Return at most `limit` lines after the id `after` that have no vectors yet, though among
        the newest of their channel, newest first. Lines by people who have opted out get none."""
        hides, found = rules(db).hides, []
        for channel in db.execute("SELECT * FROM channels").fetchall():
            rows = db.execute(_NEWEST, [channel["id"], after])
            events = (event_of(row, channel) for row in rows)
            found += [(event.id, event, channel) for event in events if not hides(event)]
        lines = []
        for _, event, channel in nlargest(limit, found, key=lambda each: each[0]):
            row = db.execute(_BEFORE, [channel["id"], event.id]).fetchone()
            before = event_of(row, channel) if row else None
            is_shown = before is not None and not hides(before)
            lines.append(LineText.from_events(event, before if is_shown else None))
        return lines

    async def add(self, lines: Iterable[LineText], made: Mapping[str, Sequence[float]]) -> None:
        """Store the vectors of lines, `made` of their texts, except of those deleted meanwhile."""
        rows = [
            [
                encode(made[line.text]),
                encode(made[line.in_talk]) if line.in_talk else None,
                line.before_id,
                line.id,
                line.before_id or line.id,
            ]
            for line in lines
        ]
        await self._database.executemany(
            "INSERT INTO vectors (vector, in_talk, before_id, event_id)"
            " SELECT ?, ?, ?, id FROM events"
            " WHERE id = ? AND EXISTS (SELECT 1 FROM events AS others WHERE others.id = ?)"
            " ON CONFLICT (event_id) DO UPDATE SET vector = excluded.vector,"
            " in_talk = excluded.in_talk, before_id = excluded.before_id",
            rows,
        )
