"""The full-text index: one pair of FTS5 tables for each stretch of about a hundred days.

`words_N` knows whole words; its second column has a token for the channel and the nick of a line,
so that a filter costs no more than another word. `parts_N` knows every three letters, for parts of
words, addresses, code and scripts without spaces; it keeps no positions (`detail=none`), so who
reads it looks at the text as well. Both keep no copy of the text and no sizes: ranking happens
elsewhere, and whole stretches go when nothing is left of them.

A stretch is 2^33 milliseconds of ids, and ids follow time: the newest stretch is the one that is
written to, and a search reads from there backwards. Measured at ten million rows, stretches keep
rare words and prefixes fast where one big index does not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from storage.chat_log.event import SPOKEN, EventType, fold_name

STRETCH = 33  # bits of an id within its stretch
_MERGED = 256  # pages of an index that one step of `merge` writes
_WORDS = """
CREATE VIRTUAL TABLE IF NOT EXISTS words_{} USING fts5 (
    text, tags, content = '', columnsize = 0, tokenize = "unicode61 remove_diacritics 2"
)"""
_PARTS = """
CREATE VIRTUAL TABLE IF NOT EXISTS parts_{} USING fts5 (
    text, content = '', columnsize = 0, detail = none, tokenize = "trigram"
)"""
_ADDED = """
INSERT INTO partitions VALUES (?, ?, 0, ?) ON CONFLICT (number) DO UPDATE
SET lines = lines + excluded.lines, drift = max(drift, excluded.drift)"""
_TAKEN = "UPDATE partitions SET lines = lines - ?1, removed = removed + ?1 WHERE number = ?2"

Line = tuple[int, str, str]
"""An id, a text and its tags."""


def partition_of(event_id: int) -> int:
    """The number of the stretch that an id belongs to."""
    return event_id >> STRETCH


def channel_tag(channel_id: int) -> str:
    """The token that stands for a channel."""
    return f"zc{channel_id}"


@lru_cache(4096)
def nick_tag(nick: str) -> str:
    """The token that stands for a nick, whatever its case."""
    return f"zn{fold_name(nick).encode('utf-8', 'replace').hex()}"


def type_tag(kind: EventType) -> str:
    """The token that stands for a kind of line; PRIVMSG, which most are, has none."""
    return f"zy{kind.value.lower()}"


OWN_TAG = "zo"


def line_of(row: Sequence[Any]) -> Line | None:
    """What the index keeps of a row of `events`; None of what nobody said."""
    event_id, channel_id, kind, _, nick = row[:5]
    text, own = row[9], row[11]
    if kind not in SPOKEN:
        return None
    tags = [channel_tag(channel_id), nick_tag(nick)]
    if kind != EventType.PRIVMSG:
        tags.append(type_tag(EventType(kind)))
    if own:
        tags.append(OWN_TAG)
    return event_id, text, " ".join(tags)


def add(connection: sqlite3.Connection, rows: Iterable[Sequence[Any]], drift: int) -> None:
    """Index rows of `events`, which are at most `drift` milliseconds ahead of their times."""
    for number, lines in by_stretch(rows):
        connection.execute(_ADDED, [number, len(lines), drift])
        if not lines:
            continue
        for table in tables(number):
            connection.execute(table)
        words, parts = inserts(number)
        connection.executemany(words, lines)
        connection.executemany(parts, _texts(lines))


def unindex(connection: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Take rows of `events`, as they were indexed, out of the index. Their words stay in pages
    that nobody reads until `merge` has written these anew."""
    for number, lines in by_stretch(rows):
        if not lines:
            continue
        connection.executemany(
            f"INSERT INTO words_{number} (words_{number}, rowid, text, tags)"
            " VALUES ('delete', ?, ?, ?)",
            lines,
        )
        connection.executemany(
            f"INSERT INTO parts_{number} (parts_{number}, rowid, text) VALUES ('delete', ?, ?)",
            _texts(lines),
        )
        connection.execute(_TAKEN, [len(lines), number])


def merge(connection: sqlite3.Connection, number: int, *, begin: bool) -> bool:
    """One step, of some milliseconds, towards an index of one piece, in which nothing is left of
    what was removed. Returns whether there is more to do; the first step says `begin`."""
    pages = -_MERGED if begin else _MERGED
    before = connection.total_changes
    for table in (f"words_{number}", f"parts_{number}"):
        connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", [pages])
    # By itself each of the two statements counts as one change; what it merges is on top.
    return connection.total_changes - before > 2


def drop(connection: sqlite3.Connection, number: int) -> None:
    """Remove the index of a stretch of which no line is left."""
    connection.execute(f"DROP TABLE words_{number}")
    connection.execute(f"DROP TABLE parts_{number}")
    connection.execute("UPDATE partitions SET removed = 0 WHERE number = ?", [number])


def tables(number: int) -> tuple[str, str]:
    """The statements that make the tables of a stretch, where there are none."""
    return _WORDS.format(number), _PARTS.format(number)


def inserts(number: int) -> tuple[str, str]:
    """The statements that index a `Line` by words, and an id and its text by parts."""
    return (
        f"INSERT INTO words_{number} (rowid, text, tags) VALUES (?, ?, ?)",
        f"INSERT INTO parts_{number} (rowid, text) VALUES (?, ?)",
    )


def by_stretch(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[int, list[Line]]]:
    """What the index keeps of rows of `events`, by the number of the stretch."""
    ordered = sorted(rows, key=lambda row: int(row[0]))
    for number, group in groupby(ordered, key=lambda row: partition_of(row[0])):
        yield number, [line for row in group if (line := line_of(row)) is not None]


def _texts(lines: Sequence[Line]) -> list[tuple[int, str]]:
    return [(event_id, text) for event_id, text, _ in lines]
