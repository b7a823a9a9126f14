"""Old logs, imported without duplicates, and exports of the log to a single plain SQLite table.

An event counts as known if the log has as many equal events (same place, type, nick, target and
text, within the same minute or second) as the file has had so far. So a file may be imported again,
may have grown, may exist in two copies or overlap with what the bot itself has logged; and a line
that was said three times in a minute is kept three times.

An export is for ad hoc SQL queries, and can be given away: user names and hosts, which can identify
people, are left out, and a private conversation has only the nick as its name.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from pathlib import Path

from storage.chat_log.event import Event, public_text
from storage.chat_log.event_table import insert, storable
from storage.db.database import Connection, Database, to_micros
from storage.log_index import fold_name

_MINUTE, _SECOND = 60_000_000, 1_000_000  # microseconds
_DEDUP_WINDOW = timedelta(days=1)  # by how much the times in a file may go backwards

# An id is its event's time in milliseconds, or ahead of it by the drift of its partition at most:
# an index finds the range of ids, and the exact range of times filters it.
_LIKE = """
SELECT time, type, nick, target, text FROM events
WHERE channel_id = (SELECT id FROM channels WHERE network = ?1 AND name = ?2)
    AND time >= ?3 AND time < ?4
    AND id BETWEEN ?3 / 1000 AND ?4 / 1000 + (SELECT coalesce(max(drift), 0) FROM partitions)
"""


@dataclass(frozen=True, slots=True)
class ImportedEvent:
    """An event of a file to import; unless its time `has_seconds` it has minutes only."""

    event: Event
    has_seconds: bool

    @property
    def resolution(self) -> int:
        """The resolution of the event's time in microseconds, within which two times are equal."""
        return _SECOND if self.has_seconds else _MINUTE

    @property
    def dedup_key(self) -> _DedupKey:
        """The fields by which it is compared for equality."""
        event, resolution = self.event, self.resolution
        return (
            *(event.network, fold_name(event.channel), resolution),
            *(to_micros(event.time) // resolution, event.type.value),
            *(event.nick, event.target, event.text),
        )


_DedupKey = tuple[str, str, int, int, str, str, str, str]
"""Network, folded channel, resolution, time in units of that, type, nick, target and text."""


class FileImport:
    """The import of one file, in batches, each of which may raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: Counter[_DedupKey] = Counter()

    async def add(self, events: Sequence[ImportedEvent]) -> int:
        """Add the events that the log lacks, in one transaction; return their number."""
        events = [ImportedEvent(storable(old.event), old.has_seconds) for old in events]

        def add_new(db: Connection) -> int:
            # `known` includes what earlier batches of this file have added, and so does `_seen`.
            known: Counter[_DedupKey] = Counter()
            keys = sorted(old.dedup_key for old in events)
            for place, group in groupby(keys, key=lambda key: key[:3]):
                network, channel, resolution = place
                times = [key[3] for key in group]
                values = [network, channel, times[0] * resolution, (times[-1] + 1) * resolution]
                for time, *fields in db.execute(_LIKE, values):
                    known[(*place, time // resolution, *fields)] += 1
            new = []
            for old in events:
                like = old.dedup_key
                self._seen[like] += 1
                if self._seen[like] > known[like]:
                    new.append(old.event)
            insert(db, new)
            return len(new)

        added = await self._database.write(add_new)
        # Counts of older events are dropped, so that memory does not grow with the file.
        newest = max((to_micros(old.event.time) for old in events), default=0)
        oldest = newest - _DEDUP_WINDOW // timedelta(microseconds=1)
        kept = {like: n for like, n in self._seen.items() if like[3] * like[2] >= oldest}
        self._seen = Counter(kept)
        return added


_EXPORT = """
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    network TEXT NOT NULL,
    channel TEXT NOT NULL,
    private INTEGER NOT NULL, -- 1 in a conversation with one person
    type TEXT NOT NULL, -- PRIVMSG, NOTICE, ACTION, JOIN, PART, QUIT, NICK, KICK, MODE, TOPIC
    time TEXT NOT NULL, -- ISO 8601, UTC
    nick TEXT NOT NULL,
    account TEXT,
    target TEXT NOT NULL, -- whom a KICK or a NICK is about
    text TEXT NOT NULL,
    own INTEGER NOT NULL, -- 1 when the bot itself said it
    reply_to INTEGER -- the message that the bot answers
)
"""
_INSERT = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INDEX = "CREATE INDEX messages_channel_time ON messages (network, channel, time)"


class SqliteExport:
    """An export that is being written. Use `open` to get one."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[SqliteExport]:
        """Open an export into the empty file `path`; it is complete once the context is left."""
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # after a crash, export it again
            connection.execute(_EXPORT)
            yield cls(connection)
            connection.execute(_INDEX)
            connection.commit()

    async def add(self, events: Sequence[Event]) -> None:
        """Append events to the export."""
        rows = [
            (
                event.id,
                event.network,
                # The room of a private conversation is named `nick!user@host`.
                event.channel.partition("!")[0] if event.private else event.channel,
                event.private,
                event.type.value,
                event.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                event.nick,
                event.account,
                event.target,
                public_text(event),
                event.own,
                event.reply_to,
            )
            for event in events
        ]
        self._connection.executemany(_INSERT, rows)
        self._connection.commit()
