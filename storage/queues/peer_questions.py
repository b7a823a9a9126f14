"""Questions that tendrils ask one another, with their answers.

A row exists as long as the asking tendril waits: it removes the row when it has the answer or gives
up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from storage.db.database import Database, to_micros


@dataclass(frozen=True, slots=True)
class QueuedQuestion:
    """A question without an answer; `taken` if the tendril has begun to answer it. `text` is
    opaque."""

    id: int
    text: str
    taken: bool


class PeerQuestions:
    """The questions in a database file. All methods raise StorageError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, tendril: str, text: str, deadline: datetime, now: datetime) -> int:
        """Add a question to a tendril and return its id. Nobody waits for it after `deadline`."""
        async with self._database.transaction() as db:
            # Whoever asked these has crashed, as it would have removed them.
            await db.execute("DELETE FROM peer_questions WHERE deadline < ?", [to_micros(now)])
            cursor = await db.execute(
                "INSERT INTO peer_questions (tendril, question, deadline) VALUES (?, ?, ?)"
                " RETURNING id",
                [tendril, text, to_micros(deadline)],
            )
            row = await cursor.fetchone()
        assert row is not None
        return int(row[0])

    async def answer_to(self, question_id: int) -> str | None:
        """Return the answer to a question, None while there is none."""
        row = await self._database.fetch_one(
            "SELECT answer FROM peer_questions WHERE id = ?", [question_id]
        )
        return None if row is None or row["answer"] is None else str(row["answer"])

    async def remove(self, question_id: int) -> None:
        """Remove a question: nobody waits for its answer any more."""
        async with self._database.transaction() as db:
            await db.execute("DELETE FROM peer_questions WHERE id = ?", [question_id])

    async def unanswered(self, tendril: str) -> Sequence[QueuedQuestion]:
        """Return the questions to a tendril that have no answer, oldest first."""
        rows = await self._database.fetch_all(
            "SELECT id, question, taken FROM peer_questions"
            " WHERE tendril = ? AND answer IS NULL ORDER BY id",
            [tendril],
        )
        return [QueuedQuestion(row["id"], row["question"], bool(row["taken"])) for row in rows]

    async def take(self, question_id: int) -> None:
        """Record that a question is being answered."""
        async with self._database.transaction() as db:
            await db.execute("UPDATE peer_questions SET taken = 1 WHERE id = ?", [question_id])

    async def answer(self, question_id: int, text: str) -> None:
        """Store the answer to a question, unless it has been removed."""
        async with self._database.transaction() as db:
            await db.execute(
                "UPDATE peer_questions SET answer = ? WHERE id = ?", [text, question_id]
            )

    async def answer_taken(self, tendril: str, text: str) -> None:
        """Store `text` as the answer to all questions that an earlier process of a tendril took and
        did not answer."""
        async with self._database.transaction() as db:
            await db.execute(
                "UPDATE peer_questions SET answer = ?"
                " WHERE tendril = ? AND taken = 1 AND answer IS NULL",
                [text, tendril],
            )
