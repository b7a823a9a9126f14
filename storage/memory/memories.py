"""The memories of rooms: facts, notes, episodes and summaries, and how far they have been made.

Every call names a room, and nothing of another one is ever read or changed.

The result of a job is stored in one transaction with its new watermark, so a crash neither loses
turns nor consolidates them twice. A result that was made from turns read before somebody was
forgotten is not stored, as the `version` of the room has changed since.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from storage.chat_log.opt_outs import person_of
from storage.db.database import Connection, Repository, Row, from_micros, reads, to_micros, writes
from storage.text_index.words import fold, words

MANUAL, OWN, HEARSAY = 1.0, 0.8, 0.3
"""The confidence in a fact: the person has asked for it to be remembered, has said it of
themselves, or somebody else has said it."""

EPISODES = 20
"""The number of episodes that a room keeps, the newest."""

LEARNT_FACTS = 200
"""The number of learnt facts that a room keeps, besides those that people asked for."""

FOLLOW, EVERYWHERE = "follow", "everywhere"
"""The key and the text of the fact by which somebody with an account lets what they have asked to
be remembered follow them to all rooms of the network."""

_MOST_FOLLOWING = 50  # facts and notes that follow somebody into a room
_MAX_BACKLOG_TURNS = 1_000  # turns of a backlog that are read at once
_MAX_OUTSIDE = 500  # facts of other rooms
_NO_LIMIT = 1 << 40  # as a limit: more than there are
_MOST_WORDS = 24  # of a search
_WORD = re.compile(r"\w{2,}")
_K1, _B = 1.2, 0.75  # of BM25
_MIN_WEIGHT = 1e-6  # of a word: one that most texts have would weigh below 0


def in_network(room: str, network: str = "network") -> str:
    """Return the SQL condition that a room is on a network; both are columns or placeholders."""
    return f"lower(substr({room}, 1, length({network}) + 1)) = lower({network}) || '/'"


# The names by which memory may know a person who has opted out.
_NAMES = """(nick, '~' || account, nick || '!' || "user" || '@' || host)"""

# Hides all memories about people who have opted out, and those that have words of theirs.
SEEN = f"""
NOT EXISTS (SELECT 1 FROM unlogged WHERE {in_network("memories.room")} AND (
    memories.subject IN {_NAMES} OR memories.source IN {_NAMES} OR EXISTS (
    SELECT 1 FROM memory_sources WHERE memory_id = memories.id AND person IN {_NAMES})))"""
_PROGRESS = """
SELECT room, summary, episodes, facts, version, wanted FROM memory_rooms WHERE room = ?"""
_TURNS = f"""
SELECT t.id, t.time, t.messages, length(t.messages) AS size, c.name, c.person
FROM conversations c JOIN turns t ON t.conversation_id = c.id
WHERE c.room = ?1 AND t.id > ?2 AND t.id <= ?3 AND NOT EXISTS (
    SELECT 1 FROM unlogged WHERE {in_network("c.room")} AND c.person IN {_NAMES})
ORDER BY t.id LIMIT ?4"""
# Of each conversation only the turns from ?2 on are read or, if there are none, its newest one. So
# the maxima are those of the whole room, at the cost of its new turns.
_SINCE = """
SELECT count(*) FILTER (WHERE t.id > ?2) AS count, max(t.id) AS newest, max(t.time) AS time
FROM conversations c JOIN turns t ON t.conversation_id = c.id
AND t.id >= (SELECT CASE WHEN max(id) < ?2 THEN max(id) ELSE ?2 END FROM turns
    WHERE conversation_id = c.id)
WHERE c.room = ?1"""
_NOTES = f"""
SELECT id FROM memories WHERE room = ? AND layer = 'note' AND {SEEN}
ORDER BY last_turn, id LIMIT ?"""
_GAPS = "SELECT first_turn, last_turn FROM memory_gaps WHERE room = ? ORDER BY first_turn"
_OPTED_OUT = f"SELECT nick FROM unlogged WHERE {in_network('?1')}"


class MemoryKind(StrEnum):
    """The kinds of memories."""

    FACT = "fact"
    NOTE = "note"
    EPISODE = "episode"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A memory of a room: a fact, a note, an episode or a summary.

    A fact has a `key`, a `subject` whom it is about, a `source` who said it, both normalised by
    `person_of`, and a `confidence` from 0 to 1; `manual` ones were asked for. `conversation` is
    where a fact or a note was said. The memory is made from the turns `first_turn` to `last_turn`,
    both 0 until the turn is stored in which it was said; `begun` is the time of the oldest. An
    episode made from notes has the key "notes".
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


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The watermarks of a room, as ids of turns.

    `summary` is the last turn in the summary, `episodes` the last in an episode, `facts` the last
    that was searched for facts. `wanted` is a turn that the next summary has to reach. `version`
    changes when something in the room is forgotten.
    """

    room: str
    summary: int = 0
    episodes: int = 0
    facts: int = 0
    version: int = 0
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class RoomTurn:
    """A turn of one of a room's conversations, with the person of that conversation."""

    id: int
    time: datetime
    conversation: str
    person: str
    messages: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        """The nick of the person who asked, in their own spelling."""
        return str(self.messages[0].get("name") or self.person)


@dataclass(frozen=True, slots=True)
class Gap:
    """The range of turns of a deleted episode, inclusive at both ends."""

    first_turn: int
    last_turn: int


@dataclass(frozen=True, slots=True)
class RoomBacklog:
    """The turns and notes of a room that wait for consolidation.

    `watermarks` have the version 0 until there are any. `sizes` has id and length, in characters,
    of each turn after the lowest of them, `gaps` are the turns whose episode was deleted, and
    `notes` the ids of the oldest notes.
    """

    watermarks: Watermarks
    sizes: Sequence[tuple[int, int]]
    gaps: Sequence[Gap]
    notes: Sequence[int]


@dataclass(frozen=True, slots=True)
class RoomMemorySnapshot:
    """A room's memory as read for one prompt.

    `shown` is the text that prompts show at present, `turns` the number of turns since it was
    chosen, `newest` the id of the room's newest turn and `last` its time. `anything` tells that the
    room has memories; `facts` are those about the person, with the facts and notes that follow them
    here, `found` the search results, best first.
    """

    shown: str
    turns: int
    newest: int
    last: datetime | None
    anything: bool = False
    facts: Sequence[Memory] = ()
    found: Sequence[Memory] = ()


_COLUMNS = [field.name for field in fields(Memory) if field.name != "id"]
_ADD = f"""
INSERT INTO memories ({", ".join(_COLUMNS)}) VALUES (:{", :".join(_COLUMNS)})"""
# A fact of greater confidence is not replaced: nobody but the person can change what they have said
# of themselves.
_FACT = f"""{_ADD}
ON CONFLICT (room, subject, key) WHERE layer = 'fact' DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)}
WHERE excluded.confidence >= memories.confidence"""


class Memories(Repository):
    """The memories in a database file. Methods that store the result of a job return False, and
    store nothing, if something in the room was forgotten, or another job moved the watermark, since
    `watermarks` was read."""

    async def add(self, memory: Memory) -> bool:
        """Store a memory; return False if a fact of greater confidence has its key."""
        return await self._database.write(lambda db: _add(db, memory)) > 0

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
        """Return the facts about one person, or all: those asked for first, then by confidence."""
        return await self._database.read(_facts, room, subject, limit)

    async def outside(self, room: str) -> list[Memory]:
        """Return the facts of all rooms but one: those asked for first, then the newest."""
        rows = await self._database.fetch_all(
            f"SELECT * FROM memories WHERE room <> ? AND layer = 'fact' AND {SEEN}"
            " ORDER BY manual DESC, id DESC LIMIT ?",
            [room, _MAX_OUTSIDE],
        )
        return [memory_of(row) for row in rows]

    async def fact(self, room: str, subject: str, key: str) -> Memory | None:
        """Return the fact about a person under a key, if there is one."""
        sql = "SELECT * FROM memories WHERE room = ? AND layer = 'fact' AND subject = ? AND key = ?"
        row = await self._database.fetch_one(sql, [room, subject, key])
        return memory_of(row) if row else None

    async def search(self, room: str, text: str, limit: int) -> list[tuple[Memory, float]]:
        """Return the memories that have words of `text`, best first, with their BM25 scores."""
        return await self._database.read(_search, room, text, limit)

    @writes
    def forget(self, db: Connection, room: str, subject: str, key: str | None = None) -> int:
        """Delete the facts and notes about a person, those of one key or all; return how many."""
        cursor = db.execute(
            "DELETE FROM memories WHERE room = :room AND subject = :subject"
            " AND layer IN ('fact', 'note') AND key = coalesce(:key, key)",
            {"room": room, "subject": subject, "key": key},
        )
        if cursor.rowcount:
            invalidate_prompt_view(db, room)
        return cursor.rowcount

    async def progress(self, room: str) -> Watermarks:
        """Return the watermarks of a room, creating them if there are none."""
        if row := await self._database.fetch_one(_PROGRESS, [room]):
            return Watermarks(*row)
        # A random version: if the row is deleted and created again, results that were read
        # before are still void.
        sql = "INSERT INTO memory_rooms (room, version) VALUES (?, ?) ON CONFLICT DO NOTHING"
        await self._database.execute(sql, [room, secrets.randbits(62)])
        row = await self._database.fetch_one(_PROGRESS, [room])
        return Watermarks(*row) if row else Watermarks(room)

    async def room_names(self) -> list[str]:
        """Return the names of all rooms that have turns."""
        rows = await self._database.fetch_all(
            "SELECT DISTINCT room FROM conversations c"
            " WHERE EXISTS (SELECT 1 FROM turns WHERE conversation_id = c.id)"
        )
        return [row["room"] for row in rows]

    @reads
    def backlog(self, db: Connection, room: str, notes: int) -> RoomBacklog:
        """Return what waits for consolidation in a room, with at most `notes` notes."""
        row = db.execute(_PROGRESS, [room]).fetchone()
        marks = Watermarks(*row) if row else Watermarks(room)
        start = min(marks.summary, marks.episodes, marks.facts)
        turns = db.execute(_TURNS, [room, start, _NO_LIMIT, _MAX_BACKLOG_TURNS])
        return RoomBacklog(
            marks,
            [(row["id"], row["size"]) for row in turns],
            [Gap(*row) for row in db.execute(_GAPS, [room])],
            [row["id"] for row in db.execute(_NOTES, [room, notes])],
        )

    async def turns(self, room: str, after: int, until: int, limit: int) -> list[RoomTurn]:
        """Return the oldest `limit` turns with ids greater than `after` and up to `until`, in order
        of arrival, without those of people who have opted out since."""
        rows = await self._database.fetch_all(_TURNS, [room, after, until, limit])
        turns = []
        for turn_id, time, text, _, conversation, person in rows:
            messages: list[dict[str, Any]] = json.loads(text)
            person = person or person_of(str(messages[0].get("name") or ""))
            turns.append(
                RoomTurn(turn_id, from_micros(time), conversation, person, tuple(messages))
            )
        return turns

    async def want_summary(self, room: str, through: int) -> None:
        """Have the next summary of a room include the turns up to `through`."""
        await self.progress(room)
        sql = "UPDATE memory_rooms SET wanted = ?2 WHERE room = ?1 AND wanted < ?2"
        await self._database.execute(sql, [room, through])

    @writes
    def advance_summary(
        self,
        db: Connection,
        watermarks: Watermarks,
        through: int,
        summary: Memory | None,
        made_of: Sequence[RoomTurn],
    ) -> bool:
        """Replace the summary by one that includes the turns up to `through`, or without a summary
        only move the watermark. Return False if it is void."""
        room = watermarks.room
        if not _move(db, watermarks, "summary", through):
            return False
        if summary:
            sources = _sources_in(made_of)
            if watermarks.summary:  # else it was made from turns alone
                rows = db.execute(
                    "SELECT s.conversation, s.person FROM memories JOIN memory_sources s"
                    " ON memory_id = id WHERE room = ? AND layer = 'summary'",
                    [room],
                ).fetchall()
                sources |= {(row[0], row[1]) for row in rows}
            db.execute("DELETE FROM memories WHERE room = ? AND layer = 'summary'", [room])
            _add_made(db, summary, sources)
        return True

    @writes
    def add_episode(
        self,
        db: Connection,
        watermarks: Watermarks,
        place: int | Gap,
        episode: Memory | None,
        made_of: Sequence[RoomTurn],
    ) -> bool:
        """Add the episode of the turns up to an id, or of those in a gap, if there is one; move the
        watermark, or close the gap. Return False if it is void."""
        if isinstance(place, Gap):
            if not _current(db, watermarks):
                return False
            sql = "DELETE FROM memory_gaps WHERE room = ? AND first_turn = ?"
            db.execute(sql, [watermarks.room, place.first_turn])
        elif not _move(db, watermarks, "episodes", place):
            return False
        if episode:
            _add_made(db, episode, _sources_in(made_of))
        return True

    @writes
    def advance_facts(
        self,
        db: Connection,
        watermarks: Watermarks,
        through: int,
        facts: Iterable[Memory],
        oldest: datetime,
    ) -> bool:
        """Add the facts learnt from the turns up to `through`, and delete learnt ones that were not
        confirmed since `oldest` or exceed `LEARNT_FACTS`. Return False if it is void."""
        if not _move(db, watermarks, "facts", through):
            return False
        # Somebody may have opted out while the model was asked.
        opted_out = {row[0] for row in db.execute(_OPTED_OUT, [watermarks.room])}
        for fact in facts:
            if fact.subject not in opted_out:
                _add(db, fact)
        learnt = "room = ? AND layer = 'fact' AND manual = 0"
        sql = f"DELETE FROM memories WHERE {learnt} AND time < ?"
        db.execute(sql, [watermarks.room, to_micros(oldest)])
        _keep_newest(db, learnt, "time", [watermarks.room, LEARNT_FACTS])
        return True

    @writes
    def replace_notes(
        self, db: Connection, watermarks: Watermarks, notes: Sequence[Memory], episode: Memory
    ) -> bool:
        """Replace notes by one episode. Return False if it is void."""
        if not _current(db, watermarks):
            return False
        db.executemany("DELETE FROM memories WHERE id = ?", [[each.id] for each in notes])
        _add_made(db, episode, {(note.conversation, note.source) for note in notes})
        return True

    @reads
    def load_for_prompt(
        self, db: Connection, room: str, person: str, words: str, most: int
    ) -> RoomMemorySnapshot:
        """Return a room's memory for a person's question, with `most` that have its `words`."""
        sql = "SELECT shown, shown_turn FROM memory_rooms WHERE room = ?"
        row = db.execute(sql, [room]).fetchone()
        text, turn = tuple(row) if row else ("", 0)
        since = db.execute(_SINCE, [room, turn]).fetchone()
        last = None if since["newest"] is None else from_micros(since["time"])
        times = (since["count"] or 0, since["newest"] or 0, last)
        following = _following(db, room, person)
        anything = db.execute("SELECT 1 FROM memories WHERE room = ? LIMIT 1", [room])
        if anything.fetchone() is None:
            return RoomMemorySnapshot(text, *times, facts=following)
        facts = [*_facts(db, room, person), *following]
        found = tuple(memory for memory, _ in _search(db, room, words, most))
        return RoomMemorySnapshot(text, *times, True, facts, found)

    @writes
    def save_prompt_view(
        self, db: Connection, watermarks: Watermarks, text: str, turn: int
    ) -> bool:
        """Set the text of prompts from now on, and the newest turn. Return False if it is void."""
        if not _current(db, watermarks):
            return False
        sql = "UPDATE memory_rooms SET shown = ?, shown_turn = ? WHERE room = ?"
        db.execute(sql, [text, turn, watermarks.room])
        return True


def _facts(
    db: Connection, room: str, subject: str | None = None, limit: int = _NO_LIMIT
) -> list[Memory]:
    rows = db.execute(
        "SELECT * FROM memories WHERE room = :room AND layer = 'fact'"
        f" AND subject = coalesce(:subject, subject) AND {SEEN}"
        " ORDER BY manual DESC, confidence DESC, id DESC LIMIT :limit",
        {"room": room, "subject": subject, "limit": limit},
    )
    return [memory_of(row) for row in rows]


def _following(db: Connection, room: str, person: str) -> list[Memory]:
    """Return the facts and notes that follow a person with an account into a room, if they have
    said so: their own words that they have asked to be remembered elsewhere on its network."""
    if not person.startswith("~"):
        return []  # a mask may be somebody else's tomorrow
    own = "subject = :person AND source = :person AND manual = 1"
    network = in_network("memories.room", ":network")
    wish = f"key = '{FOLLOW}' AND lower(text) = '{EVERYWHERE}' AND {in_network('room', ':network')}"
    rows = db.execute(
        f"SELECT * FROM memories WHERE {own} AND layer IN ('fact', 'note') AND room <> :room"
        f" AND {network} AND key <> '{FOLLOW}' AND {SEEN}"
        " AND NOT EXISTS (SELECT 1 FROM memories AS here WHERE here.room = :room"
        " AND here.subject = :person AND here.key = memories.key AND here.key <> '')"
        f" AND EXISTS (SELECT 1 FROM memories WHERE {own} AND {wish})"
        " ORDER BY id DESC LIMIT :limit",
        {
            "person": person,
            "room": room,
            "network": room.partition("/")[0],
            "limit": _MOST_FOLLOWING,
        },
    )
    return [memory_of(row) for row in rows]


def _search(db: Connection, room: str, text: str, limit: int) -> list[tuple[Memory, float]]:
    words = list(dict.fromkeys(_WORD.findall(text)))[:_MOST_WORDS]
    if not words:
        return []
    known = db.execute(f"SELECT * FROM memories WHERE room = ? AND {SEEN}", [room]).fetchall()
    ranked = rank([f"{row['key']} {row['text']}" for row in known], words)
    return [(memory_of(known[place]), score) for place, score in ranked[:limit]]


def _add(db: Connection, memory: Memory) -> int:
    """Run `Memories.add` in a transaction; return the id, 0 if another fact is kept."""
    sql = _FACT if memory.layer == MemoryKind.FACT else _ADD
    begun, time = to_micros(memory.begun or memory.time), to_micros(memory.time)
    values = asdict(memory) | {"begun": begun, "time": time, "manual": int(memory.manual)}
    del values["id"]
    row = db.execute(f"{sql} RETURNING id", values).fetchone()
    return int(row[0]) if row else 0


def invalidate_prompt_view(db: Connection, room: str) -> None:
    """Delete the text that prompts show, so that it is chosen again, and void the results of jobs
    that have read the room before."""
    sql = "UPDATE memory_rooms SET shown = '', shown_turn = 0, version = version + 1 WHERE room = ?"
    db.execute(sql, [room])


def memory_of(row: Mapping[str, Any] | Row) -> Memory:
    """Return a row as a memory."""
    values = {name: row[name] for name in ("id", *_COLUMNS)}
    values["layer"], values["manual"] = MemoryKind(row["layer"]), bool(row["manual"])
    values["time"], values["begun"] = from_micros(row["time"]), from_micros(row["begun"])
    return Memory(**values)


def _current(db: Connection, watermarks: Watermarks, mark: str = "version") -> bool:
    """Return True if the version and one watermark are still as they were read."""
    # Only one transaction writes at a time, so the answer holds until the commit of this one.
    sql = f"SELECT version, {mark} FROM memory_rooms WHERE room = ?"
    row = db.execute(sql, [watermarks.room]).fetchone()
    return row is not None and tuple(row) == (watermarks.version, getattr(watermarks, mark))


def _move(db: Connection, watermarks: Watermarks, mark: str, to: int) -> bool:
    """Move a watermark; return False, without moving it, if what was read is void."""
    if not _current(db, watermarks, mark):
        return False
    sql = f"UPDATE memory_rooms SET {mark} = ? WHERE room = ?"
    db.execute(sql, [to, watermarks.room])
    return True


def _sources_in(turns: Sequence[RoomTurn]) -> set[tuple[str, str]]:
    return {(turn.conversation, turn.person) for turn in turns}


def _add_made(db: Connection, memory: Memory, sources: Iterable[tuple[str, str]]) -> None:
    """Add an episode or a summary that was made of what people said, and keep the newest ones."""
    memory_id = _add(db, memory)
    sql = "INSERT INTO memory_sources VALUES (?, ?, ?)"
    db.executemany(sql, [(memory_id, *source) for source in sorted(sources)])
    which = "room = ? AND layer = 'episode'"
    _keep_newest(db, which, "last_turn", [memory.room, EPISODES])


def _keep_newest(db: Connection, which: str, newest: str, values: Sequence[str | int]) -> None:
    """Delete the oldest memories of a kind; the last of `values` is how many are kept."""
    # OFFSET needs a LIMIT in SQLite, and PostgreSQL takes no negative one for "all".
    db.execute(
        f"DELETE FROM memories WHERE id IN (SELECT id FROM memories WHERE {which}"
        f" ORDER BY {newest} DESC, id DESC LIMIT 1000000000 OFFSET ?)",
        values,
    )


def rank(texts: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, float]]:
    """Return position and score of each text that has any of the `wanted` words, best first; ties
    are in order of position.

    The score is Okapi BM25 (https://www.sqlite.org/fts5.html#the_bm25_function). It is computed
    here, as the texts of a room are few, and statistics of an index would be of all rooms.
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
