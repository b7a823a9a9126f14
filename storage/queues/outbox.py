"""The tables that tendrils share: messages that one has another say, and questions to one another.

A message is pending until it has been said, so that neither side's restart loses it. A question
exists as long as the asking tendril waits: it removes the row when it has the answer or gives up.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from storage.chat_log.event import Place
from storage.db.database import Connection, Repository, from_micros, to_micros, writes


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A pending message, its place, and the ids of the log lines that it repeats."""

    id: int
    place: Place
    text: str
    quotes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PlaceLimits:
    """The limits of what models send to a place by themselves: `a_day`, each after a `pause`."""

    pause: timedelta
    a_day: int


_OF_MODEL = "model:"  # begins the keys of what models send by themselves


class Outbox(Repository):
    """The messages in a database file."""

    async def put(
        self,
        key: str,
        place: Place,
        text: str,
        *,
        tendril: str = "irc",
        quotes: Collection[int] = (),
    ) -> None:
        """Add a message for a tendril, unless there ever was one with this idempotency `key`. A
        place without a network is on the tendril's first one."""
        message = OutgoingMessage(0, place, text, frozenset(quotes))
        await self._database.write(lambda db: _insert(db, key, tendril, message, datetime.now(UTC)))

    @writes
    def put_of_model(
        self,
        db: Connection,
        key: str,
        tendril: str,
        message: OutgoingMessage,
        limits: PlaceLimits,
        now: datetime,
    ) -> datetime | None:
        """Add a message that a model sends by itself, as `put` does, if its place is within the
        limits; else return the time from which on that may have the next one."""
        sql = (
            "SELECT time FROM outbox WHERE key LIKE ? AND network = ?"
            " AND lower(channel) = lower(?) AND time > ? ORDER BY time DESC LIMIT ?"
        )
        place, day = message.place, timedelta(days=1)
        since = to_micros(now - day)
        values = [f"{_OF_MODEL}%", place.network, place.channel, since, limits.a_day]
        known = db.execute("SELECT 1 FROM outbox WHERE key = ?", [_OF_MODEL + key]).fetchone()
        times = [from_micros(row[0]) for row in db.execute(sql, values)]
        if times and not known:
            pauses = [times[0] + limits.pause, times[-1] + day]
            free = max(pauses if len(times) == limits.a_day else pauses[:1])
            if free > now:
                return free
        _insert(db, _OF_MODEL + key, tendril, message, now)
        return None

    async def list_unsent(self, tendril: str = "irc") -> Sequence[OutgoingMessage]:
        """Return a tendril's pending messages, oldest first."""
        sql = "SELECT * FROM outbox WHERE sent IS NULL AND tendril = ? ORDER BY id"
        rows = await self._database.fetch_all(sql, [tendril])
        return [
            OutgoingMessage(
                row["id"],
                Place(row["network"], row["channel"]),
                row["text"],
                frozenset(json.loads(row["quotes"])),
            )
            for row in rows
        ]

    async def mark_sent(self, message: OutgoingMessage) -> None:
        """Mark a message as said. Its row is kept for the key alone."""
        sql = "UPDATE outbox SET sent = ?, text = '', quotes = '[]' WHERE id = ?"
        await self._database.execute(sql, [to_micros(datetime.now(UTC)), message.id])


def _insert(
    db: Connection, key: str, tendril: str, message: OutgoingMessage, time: datetime
) -> None:
    place, quotes = message.place, json.dumps(sorted(message.quotes))
    values = [key, tendril, place.network, place.channel, message.text, quotes, to_micros(time)]
    db.execute(
        "INSERT INTO outbox (key, tendril, network, channel, text, quotes, time)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        values,
    )


class PeerQuestions(Repository):
    """The questions in a database file. All methods raise StorageError."""

    @writes
    def put(
        self, db: Connection, tendril: str, text: str, deadline: datetime, now: datetime
    ) -> int:
        """Add a question to a tendril and return its id. Nobody waits for it after `deadline`."""
        # Whoever asked these has crashed, as it would have removed them.
        db.execute("DELETE FROM peer_questions WHERE deadline < ?", [to_micros(now)])
        row = db.execute(
            "INSERT INTO peer_questions (tendril, question, deadline) VALUES (?, ?, ?)"
            " RETURNING id",
            [tendril, text, to_micros(deadline)],
        ).fetchone()
        return int(row[0])

    async def answer_to(self, question_id: int) -> str | None:
        """Return the answer to a question, None while there is none."""
        sql = "SELECT answer FROM peer_questions WHERE id = ?"
        row = await self._database.fetch_one(sql, [question_id])
        return None if row is None or row["answer"] is None else str(row["answer"])

    async def remove(self, question_id: int) -> None:
        """Remove a question: nobody waits for its answer any more."""
        await self._database.execute("DELETE FROM peer_questions WHERE id = ?", [question_id])

    async def unanswered(self, tendril: str) -> Mapping[int, str]:
        """Return the unanswered questions to a tendril by id, oldest first."""
        rows = await self._database.fetch_all(
            "SELECT id, question FROM peer_questions"
            " WHERE tendril = ? AND answer IS NULL ORDER BY id",
            [tendril],
        )
        return {row["id"]: row["question"] for row in rows}

    async def take(self, question_id: int) -> None:
        """Record that a question is being answered."""
        sql = "UPDATE peer_questions SET taken = 1 WHERE id = ?"
        await self._database.execute(sql, [question_id])

    async def answer(self, question_id: int, text: str) -> None:
        """Store the answer to a question, unless it has been removed."""
        sql = "UPDATE peer_questions SET answer = ? WHERE id = ?"
        await self._database.execute(sql, [text, question_id])

    async def answer_taken(self, tendril: str, text: str) -> None:
        """Answer all questions that an earlier process of a tendril took with the same `text`."""
        await self._database.execute(
            "UPDATE peer_questions SET answer = ?"
            " WHERE tendril = ? AND taken = 1 AND answer IS NULL",
            [text, tendril],
        )
