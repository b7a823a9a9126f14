"""Progress of the jobs that make summaries, episodes and facts of each room's turns.

What a job has made of some turns is stored together with how far it came, in one transaction: a
crash before it leaves nothing, and nothing is read again after it. What was read before somebody
was forgotten is not stored: `version` has grown meanwhile.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from storage.chat_log.opt_outs import person_of
from storage.db.database import AsyncConnection, Connection, Database, Row, from_micros, to_micros
from storage.memory.conversations import Message
from storage.memory.memories import SEEN, Memory, MemoryKind, add, facts_in, found_in, in_network

EPISODES = 20
"""That are kept of a room."""

LEARNT_FACTS = 200
"""That are kept of a room beside those that people asked for."""

_MOST = 1_000  # turns looked at at once

_PROGRESS = """
SELECT room, folded, told, studied, version, wanted FROM memory_rooms WHERE room = ?"""
_TURNS = f"""
SELECT t.id, t.time, t.messages, length(t.messages) AS size, c.name, c.person
FROM conversations c JOIN turns t ON t.conversation_id = c.id
WHERE c.room = ?1 AND t.id > ?2 AND t.id <= ?3 AND c.person NOT IN (
    SELECT nick FROM unlogged WHERE {in_network("c.room")})
ORDER BY t.id LIMIT ?4"""
_SINCE = """
SELECT count(*) FILTER (WHERE t.id > ?2) AS count, max(t.id) AS newest, max(t.time) AS time
FROM conversations c JOIN turns t ON t.conversation_id = c.id
AND t.id >= (SELECT CASE WHEN max(id) < ?2 THEN max(id) ELSE ?2 END FROM turns
    WHERE conversation_id = c.id)
WHERE c.room = ?1"""
_NOTES = f"""
SELECT id FROM memories WHERE room = ? AND layer = 'note' AND {SEEN}
ORDER BY last_turn, id LIMIT ?"""
_OPTED_OUT = f"SELECT nick FROM unlogged WHERE {in_network('?1')}"
_LAST = 1 << 62


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Watermarks of a room: the last turns in its summary, its episodes and its facts.

    `folded` are in the summary, `told` in an episode, `studied` were looked at for facts; `wanted`
    is where the summary is to reach again.
    """

    room: str
    folded: int = 0
    told: int = 0
    studied: int = 0
    version: int = 0
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class RoomTurn:
    """A turn of any conversation in a room, and whose it is."""

    id: int
    time: datetime
    conversation: str
    person: str
    messages: tuple[Message, ...]

    @property
    def name(self) -> str:
        """The nick of the person who asked, as they write it."""
        return str(self.messages[0].get("name") or self.person)


@dataclass(frozen=True, slots=True)
class Gap:
    """Turns whose episode was deleted."""

    first_turn: int
    last_turn: int


@dataclass(frozen=True, slots=True)
class RoomBacklog:
    """The turns and notes of a room that may become memories.

    `watermarks` are where its jobs are, None where none ever ran; `sizes` the ids of the turns
    after them, with the characters that each takes; `notes` the ids of its oldest notes.
    `has_gaps`: some turns lack an episode.
    """

    watermarks: Watermarks | None
    sizes: Sequence[tuple[int, int]]
    has_gaps: bool
    notes: Sequence[int]


@dataclass(frozen=True, slots=True)
class RoomMemorySnapshot:
    """A room's memory as a prompt shows it.

    `shown` is its last written form, `turns` those that came after it, `newest` the last turn of
    all and its time; `anything` says that something is remembered, with what is known about a
    person, and what was `found`, best first.
    """

    shown: str
    turns: int
    newest: int
    last: datetime | None
    anything: bool = False
    facts: Sequence[Memory] = ()
    found: Sequence[Memory] = ()


class ConsolidationStore:
    """The rooms in a database file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def progress(self, room: str) -> Watermarks:
        """Return the watermarks of a room."""
        if row := await self._database.fetch_one(_PROGRESS, [room]):
            return Watermarks(*row)
        async with self._database.transaction() as db:
            # No two rows have the same version, so that one which was deleted is never met again.
            await db.execute(
                "INSERT INTO memory_rooms (room, version) VALUES (?, ?) ON CONFLICT DO NOTHING",
                [room, secrets.randbits(62)],
            )
        row = await self._database.fetch_one(_PROGRESS, [room])
        return Watermarks(*row) if row else Watermarks(room)

    async def room_names(self) -> list[str]:
        """Return every room that has turns."""
        rows = await self._database.fetch_all(
            "SELECT DISTINCT room FROM conversations c"
            " WHERE EXISTS (SELECT 1 FROM turns WHERE conversation_id = c.id)"
        )
        return [row["room"] for row in rows]

    async def backlog(self, room: str, notes: int) -> RoomBacklog:
        """Read what waits in a room to become memories, with at most so many `notes`, in one
        snapshot."""

        def reading(db: Connection) -> RoomBacklog:
            row = db.execute(_PROGRESS, [room]).fetchone()
            marks = Watermarks(*row) if row else None
            start = min(marks.folded, marks.told, marks.studied) if marks else 0
            turns = db.execute(_TURNS, [room, start, _LAST, _MOST]).fetchall()
            gap = db.execute("SELECT 1 FROM memory_gaps WHERE room = ? LIMIT 1", [room]).fetchone()
            found = db.execute(_NOTES, [room, notes]).fetchall()
            return RoomBacklog(
                marks,
                [(row["id"], row["size"]) for row in turns],
                gap is not None,
                [row["id"] for row in found],
            )

        return await self._database.read(reading, inline=True)

    async def turns(self, room: str, after: int, until: int, limit: int) -> list[RoomTurn]:
        """Return the oldest turns after one, up to another, in order of arrival; without those of
        people who have opted out since."""
        rows = await self._database.fetch_all(_TURNS, [room, after, until, limit])
        return [_turn(row) for row in rows]

    async def gaps(self, room: str) -> list[Gap]:
        """Return the ranges of turns that lack an episode."""
        rows = await self._database.fetch_all(
            "SELECT first_turn, last_turn FROM memory_gaps WHERE room = ? ORDER BY first_turn",
            [room],
        )
        return [Gap(*row) for row in rows]

    async def advance_summary(
        self,
        watermarks: Watermarks,
        through: int,
        summary: Memory | None,
        made_of: Sequence[RoomTurn],
    ) -> bool:
        """Replace the summary by one that has the turns to `through` in it as well (or, with
        none, only say that these were gone through). False: it is void."""
        async with self._database.transaction() as db:
            if not await _move(db, watermarks, "folded", through):
                return False
            if summary:
                before = await _sources(db, watermarks.room) if watermarks.folded else set()
                await db.execute(
                    "DELETE FROM memories WHERE room = ? AND layer = 'summary'", [watermarks.room]
                )
                await _add_made(db, summary, before | _sources_in(made_of))
            return True

    async def advance_episodes(
        self,
        watermarks: Watermarks,
        through: int,
        episode: Memory | None,
        made_of: Sequence[RoomTurn],
    ) -> bool:
        """Add the episode that the turns to `through` are, if they are any. False: it is void."""
        async with self._database.transaction() as db:
            if not await _move(db, watermarks, "told", through):
                return False
            await _add_episode(db, episode, made_of)
            return True

    async def fill(
        self, watermarks: Watermarks, gap: Gap, episode: Memory | None, made_of: Sequence[RoomTurn]
    ) -> bool:
        """Add the episode that takes the place of a deleted one. False: it is void."""
        async with self._database.transaction() as db:
            if not await _current(db, watermarks):
                return False
            await db.execute(
                "DELETE FROM memory_gaps WHERE room = ? AND first_turn = ?",
                [watermarks.room, gap.first_turn],
            )
            await _add_episode(db, episode, made_of)
            return True

    async def advance_facts(
        self, watermarks: Watermarks, through: int, facts: Iterable[Memory], oldest: datetime
    ) -> bool:
        """Learn facts from the turns to `through`, and drop learnt ones that nobody has confirmed
        since `oldest`, or that are too many. False: it is void."""
        async with self._database.transaction() as db:
            if not await _move(db, watermarks, "studied", through):
                return False
            async with db.execute(_OPTED_OUT, [watermarks.room]) as rows:
                opted_out = {row[0] for row in await rows.fetchall()}
            for fact in facts:
                if fact.subject not in opted_out:
                    await add(db, fact)
            learnt = "room = ? AND layer = 'fact' AND manual = 0"
            await db.execute(
                f"DELETE FROM memories WHERE {learnt} AND time < ?",
                [watermarks.room, to_micros(oldest)],
            )
            await db.execute(
                f"DELETE FROM memories WHERE id IN (SELECT id FROM memories WHERE {learnt}"
                " ORDER BY time DESC, id DESC LIMIT 1000000000 OFFSET ?)",
                [watermarks.room, LEARNT_FACTS],
            )
            return True

    async def replace_notes(self, notes: Sequence[Memory], episode: Memory) -> bool:
        """Put one episode in the place of notes. False: some of them are gone meanwhile."""
        ids = json.dumps([note.id for note in notes])
        async with self._database.transaction() as db:
            which = "id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
            sql = f"SELECT count(*) FROM memories WHERE {which}"
            async with db.execute(sql, [ids]) as rows:
                row = await rows.fetchone()
            if row is None or row[0] < len(notes):
                return False
            await db.execute(
                f"DELETE FROM memories WHERE {which}",
                [ids],
            )
            await _add_made(db, episode, {(note.conversation, note.source) for note in notes})
            await _keep_newest(db, episode.room)
            return True

    async def load_for_prompt(
        self, room: str, person: str, words: str, most: int
    ) -> RoomMemorySnapshot:
        """Read a room's memory for a question of a person, in one snapshot.

        At most `most` memories have some of the `words`.
        """

        def reading(db: Connection) -> RoomMemorySnapshot:
            row = db.execute(
                "SELECT shown, shown_turn FROM memory_rooms WHERE room = ?", [room]
            ).fetchone()
            text, turn = tuple(row) if row else ("", 0)
            since = db.execute(_SINCE, [room, turn]).fetchone()
            last = None if since["newest"] is None else from_micros(since["time"])
            times = (since["count"] or 0, since["newest"] or 0, last)
            if (
                db.execute("SELECT 1 FROM memories WHERE room = ? LIMIT 1", [room]).fetchone()
                is None
            ):
                return RoomMemorySnapshot(text, *times)
            facts = facts_in(db, room, person)
            found = tuple(memory for memory, _ in found_in(db, room, words, most))
            return RoomMemorySnapshot(text, *times, True, facts, found)

        return await self._database.read(reading, inline=True)

    async def save_prompt_view(self, watermarks: Watermarks, text: str, turn: int) -> bool:
        """Let prompts show `text` from now on. False: it is void."""
        async with self._database.transaction() as db:
            if not await _current(db, watermarks):
                return False
            await db.execute(
                "UPDATE memory_rooms SET shown = ?, shown_turn = ? WHERE room = ?",
                [text, turn, watermarks.room],
            )
            return True


async def _current(db: AsyncConnection, watermarks: Watermarks, mark: str = "version") -> bool:
    """Return True if nothing was forgotten since the reading, and a watermark is where it was."""
    sql = f"SELECT version, {mark} FROM memory_rooms WHERE room = ?"
    async with db.execute(sql, [watermarks.room]) as rows:
        row = await rows.fetchone()
    return row is not None and tuple(row) == (watermarks.version, getattr(watermarks, mark))


async def _move(db: AsyncConnection, watermarks: Watermarks, mark: str, to: int) -> bool:
    """Move a mark on, unless what was read is void."""
    if not await _current(db, watermarks, mark):
        return False
    await db.execute(f"UPDATE memory_rooms SET {mark} = ? WHERE room = ?", [to, watermarks.room])
    return True


def _sources_in(turns: Sequence[RoomTurn]) -> set[tuple[str, str]]:
    return {(turn.conversation, turn.person) for turn in turns}


async def _sources(db: AsyncConnection, room: str) -> set[tuple[str, str]]:
    """Return the people whose words are in the summary."""
    async with db.execute(
        "SELECT s.conversation, s.person FROM memories JOIN memory_sources s ON memory_id = id"
        " WHERE room = ? AND layer = 'summary'",
        [room],
    ) as rows:
        return {(row[0], row[1]) for row in await rows.fetchall()}


async def _add_made(
    db: AsyncConnection, memory: Memory, sources: Iterable[tuple[str, str]]
) -> None:
    memory_id = await add(db, memory)
    await db.executemany(
        "INSERT INTO memory_sources VALUES (?, ?, ?)",
        [(memory_id, *source) for source in sorted(sources)],
    )


async def _add_episode(
    db: AsyncConnection, episode: Memory | None, made_of: Sequence[RoomTurn]
) -> None:
    if episode:
        await _add_made(db, episode, _sources_in(made_of))
        await _keep_newest(db, episode.room)


async def _keep_newest(db: AsyncConnection, room: str) -> None:
    await db.execute(
        "DELETE FROM memories WHERE id IN (SELECT id FROM memories WHERE room = ? AND layer = ?"
        " ORDER BY last_turn DESC, id DESC LIMIT 1000000000 OFFSET ?)",
        [room, MemoryKind.EPISODE, EPISODES],
    )


def _turn(row: Row) -> RoomTurn:
    messages: list[Message] = json.loads(row["messages"])
    person = row["person"] or person_of(str(messages[0].get("name") or ""))
    return RoomTurn(row["id"], from_micros(row["time"]), row["name"], person, tuple(messages))
