"""The memories of rooms: facts, notes, episodes and summaries.

Every call names a room, and nothing of another one is ever read or changed. Facts are about a
subject; names of people are normalised by `person_of`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from storage.connection import Dialect
from storage.db.database import AsyncConnection, Connection, Database, Row, from_micros, to_micros
from storage.text_index.words import fold, words

MANUAL, OWN, HEARSAY = 1.0, 0.8, 0.3
"""The confidence in a fact: the person has asked for it to be remembered, has said it of
themselves, or somebody else has said it."""

_NO_LIMIT = 1 << 40  # as a limit: more than there are
_MOST_WORDS = 24  # of a search
_WORD = re.compile(r"\w{2,}")
_K1, _B = 1.2, 0.75  # of BM25, as in FTS5
_MIN_WEIGHT = 1e-6  # of a word, as in FTS5: one that most texts have would weigh below 0


def in_network(room: str, network: str = "network") -> str:
    """Return the SQL condition that a room is on a network; both are columns or placeholders."""
    return f"lower(substr({room}, 1, length({network}) + 1)) = lower({network}) || '/'"


# Hides all memories about people who have opted out, and those that have words of theirs.
SEEN = f"""
NOT EXISTS (SELECT 1 FROM unlogged WHERE {in_network("memories.room")} AND nick IN (
    SELECT memories.subject UNION SELECT memories.source UNION
    SELECT person FROM memory_sources WHERE memory_id = memories.id))"""
_FOUND = f"""
SELECT memories.*, -bm25(memory_text) AS score FROM memory_text
JOIN memories ON id = memory_text.rowid
WHERE memory_text MATCH ? AND room = ? AND {SEEN} ORDER BY bm25(memory_text) LIMIT ?"""


class MemoryKind(StrEnum):
    """The kinds of memories."""

    FACT = "fact"
    NOTE = "note"
    EPISODE = "episode"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A memory of a room: a fact, a note, an episode or a summary.

    A fact has a `key`, a `subject` whom it is about, a `source` who said it, and a `confidence`
    from 0 to 1; `manual` ones were asked for. `conversation` is where a fact or a note was said.
    The memory is made from the turns `first_turn` to `last_turn`, both 0 until the turn is stored
    in which it was said; `begun` is the time of the oldest. An episode made from notes has the key
    "notes".
    """

    layer: MemoryKind
    room: str
    text: str
    time: datetime
    subject: str = ""
    key: str = ""
    source: str = ""
    manual: bool = False
    confidence: float = 1.0
    conversation: str = ""
    first_turn: int = 0
    last_turn: int = 0
    begun: datetime | None = None
    id: int = 0


_COLUMNS = [field.name for field in fields(Memory) if field.name != "id"]
_ADD = f"""
INSERT INTO memories ({", ".join(_COLUMNS)}) VALUES (:{", :".join(_COLUMNS)})"""
# A fact of greater confidence is not replaced: nobody but the person can change what they have said
# of themselves.
_FACT = f"""{_ADD}
ON CONFLICT (room, subject, key) WHERE layer = 'fact' DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)}
WHERE excluded.confidence >= memories.confidence"""


class Memories:
    """The memories in a database file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, memory: Memory) -> bool:
        """Store a memory. A fact replaces the one of its key, unless that has greater confidence:
        then return False."""
        async with self._database.transaction() as db:
            return await add(db, memory) > 0

    async def latest(self, room: str, layer: MemoryKind, limit: int = _NO_LIMIT) -> list[Memory]:
        """Return the newest `limit` memories of a layer, oldest first."""
        rows = await self._database.fetch_all(
            f"SELECT * FROM memories WHERE room = ? AND layer = ? AND {SEEN}"
            " ORDER BY last_turn DESC, id DESC LIMIT ?",
            [room, layer, limit],
        )
        return [memory_of(row) for row in reversed(rows)]

    async def facts(
        self, room: str, subject: str | None = None, limit: int = _NO_LIMIT
    ) -> list[Memory]:
        """Return the facts about one person, or all: those that were asked for first, then by
        confidence, then the newest first."""
        return await self._database.read(lambda db: facts_in(db, room, subject, limit))

    async def fact(self, room: str, subject: str, key: str) -> Memory | None:
        """Return the fact about a person under a key, if there is one."""
        row = await self._database.fetch_one(
            "SELECT * FROM memories WHERE room = ? AND layer = 'fact' AND subject = ? AND key = ?",
            [room, subject, key],
        )
        return memory_of(row) if row else None

    async def search(self, room: str, text: str, limit: int) -> list[tuple[Memory, float]]:
        """Return the memories that have words of `text`, best first, with their BM25 scores."""
        return await self._database.read(lambda db: search_in(db, room, text, limit))

    async def forget(self, room: str, subject: str, key: str | None = None) -> int:
        """Delete the facts and notes about a person, those of one key or all; return how many."""
        async with self._database.transaction() as db:
            cursor = await db.execute(
                "DELETE FROM memories WHERE room = :room AND subject = :subject"
                " AND layer IN ('fact', 'note') AND key = coalesce(:key, key)",
                {"room": room, "subject": subject, "key": key},
            )
            if cursor.rowcount:
                await invalidate_prompt_view(db, room)
            return cursor.rowcount


def facts_in(
    db: Connection, room: str, subject: str | None = None, limit: int = _NO_LIMIT
) -> list[Memory]:
    """Run `Memories.facts` in a reading transaction."""
    rows = db.execute(
        "SELECT * FROM memories WHERE room = :room AND layer = 'fact'"
        f" AND subject = coalesce(:subject, subject) AND {SEEN}"
        " ORDER BY manual DESC, confidence DESC, id DESC LIMIT :limit",
        {"room": room, "subject": subject, "limit": limit},
    )
    return [memory_of(row) for row in rows]


def search_in(db: Connection, room: str, text: str, limit: int) -> list[tuple[Memory, float]]:
    """Run `Memories.search` in a reading transaction."""
    words = list(dict.fromkeys(_WORD.findall(text)))[:_MOST_WORDS]
    if not words:
        return []
    if db.dialect is Dialect.POSTGRES:  # which has no BM25; the memories of a room are few
        known = db.execute(f"SELECT * FROM memories WHERE room = ? AND {SEEN}", [room]).fetchall()
        ranked = rank([f"{row['key']} {row['text']}" for row in known], words)
        return [(memory_of(known[place]), score) for place, score in ranked[:limit]]
    # A word has no quotation mark, so nothing that people type is syntax of FTS5.
    match = " OR ".join(f'"{word}"' for word in words)
    rows = db.execute(_FOUND, [match, room, limit])
    return [(memory_of(row), float(row["score"])) for row in rows]


async def add(db: AsyncConnection, memory: Memory) -> int:
    """Run `Memories.add` in a transaction; return the id, 0 if a fact of greater confidence is
    kept."""
    sql = _FACT if memory.layer == MemoryKind.FACT else _ADD
    begun, time = to_micros(memory.begun or memory.time), to_micros(memory.time)
    values = asdict(memory) | {"begun": begun, "time": time, "manual": int(memory.manual)}
    del values["id"]
    async with db.execute(f"{sql} RETURNING id", values) as added:
        row = await added.fetchone()
    return int(row[0]) if row else 0


async def invalidate_prompt_view(db: AsyncConnection, room: str) -> None:
    """Delete the text that prompts show, so that it is chosen again, and void the results of jobs
    that have read the room before."""
    await db.execute(
        "UPDATE memory_rooms SET shown = '', shown_turn = 0, version = version + 1 WHERE room = ?",
        [room],
    )


def memory_of(row: Mapping[str, Any] | Row) -> Memory:
    """Return a row as a memory."""
    values = {name: row[name] for name in ("id", *_COLUMNS)}
    values["layer"], values["manual"] = MemoryKind(row["layer"]), bool(row["manual"])
    values["time"], values["begun"] = from_micros(row["time"]), from_micros(row["begun"])
    return Memory(**values)


def rank(texts: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, float]]:
    """Return position and score of each text that has any of the `wanted` words, best first; ties
    are in order of position.

    The score is Okapi BM25 as computed by FTS5 (https://www.sqlite.org/fts5.html#the_bm25_function).
    """
    documents = [Counter(words(fold(text))) for text in texts]
    lengths = [document.total() for document in documents]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    scores: dict[int, float] = {}
    for word in dict.fromkeys(map(fold, wanted)):
        having = [place for place, document in enumerate(documents) if word in document]
        weight = math.log((len(texts) - len(having) + 0.5) / (len(having) + 0.5))
        for place in having:
            often = documents[place][word]
            length = _K1 * (1 - _B + _B * lengths[place] / average)
            value = max(weight, _MIN_WEIGHT) * often * (_K1 + 1) / (often + length)
            scores[place] = scores.get(place, 0.0) + value
    return sorted(scores.items(), key=lambda each: (-each[1], each[0]))
