"""Export of log events to a single plain SQLite table, for ad hoc SQL queries.

It can be given away: user names and hosts, which can identify people, are left out, and a private
conversation has only the nick as its name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from storage.chat_log.event import Event, public_text

_TABLE = """
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
            connection.execute(_TABLE)
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
