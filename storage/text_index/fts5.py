"""The index in SQLite: one pair of FTS5 tables for each partition.

`words_N` knows whole words; its second column has a token for the channel and the nick of a line,
so that a filter costs no more than another word. `parts_N` is a trigram index, for parts of words,
addresses, code and scripts without spaces; it keeps no positions (`detail=none`), so whoever reads
it has to look at the text as well. Neither keeps a copy of the text or its size. User text is
always quoted: nothing that people type can be an operator of FTS5 or an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage.connection import Connection
from storage.text_index.model import IdRange, IndexedLine, IndexQuery, Phrase, WordMatch

_MERGED = 256  # pages of an index that one step of `merge` writes
_MOST_TRIGRAMS = 12  # of one part: with so many next to nothing else is found
_WORDS = """
CREATE VIRTUAL TABLE IF NOT EXISTS words_{} USING fts5 (
    text, tags, content = '', columnsize = 0, tokenize = "unicode61 remove_diacritics 2"
)"""
_PARTS = """
CREATE VIRTUAL TABLE IF NOT EXISTS parts_{} USING fts5 (
    text, content = '', columnsize = 0, detail = none, tokenize = "trigram"
)"""
_CHANGES = "SELECT total_changes()"


class Fts5Index:
    """The index as pairs of FTS5 tables."""

    def add(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        """Index lines, in the transaction that stores them."""
        for table in tables(number):
            connection.execute(table)
        words, parts = inserts(number)
        connection.executemany(words, lines)
        connection.executemany(parts, _texts(lines))

    def remove(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        """Take lines out, as they were added."""
        connection.executemany(
            f"INSERT INTO words_{number} (words_{number}, rowid, text, tags)"
            " VALUES ('delete', ?, ?, ?)",
            lines,
        )
        connection.executemany(
            f"INSERT INTO parts_{number} (parts_{number}, rowid, text) VALUES ('delete', ?, ?)",
            _texts(lines),
        )

    def merge(self, connection: Connection, number: int, *, begin: bool) -> bool:
        """Merge some pages; True while there is more to merge."""
        pages = -_MERGED if begin else _MERGED
        before = connection.execute(_CHANGES).fetchone()[0]
        for table in (f"words_{number}", f"parts_{number}"):
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", [pages])
        # By itself each of the two statements counts as one change; what it merges is on top.
        return int(connection.execute(_CHANGES).fetchone()[0]) - int(before) > 2

    def drop(self, connection: Connection, number: int) -> None:
        """Drop a partition."""
        connection.execute(f"DROP TABLE words_{number}")
        connection.execute(f"DROP TABLE parts_{number}")

    def ids(
        self, connection: Connection, ranges: Sequence[IdRange], wanted: IndexQuery
    ) -> list[int]:
        """Return the newest ids of lines in `ranges` that may fit, newest first; so are these."""
        found: list[int] = []
        for id_range in ranges:
            found += self._ids(connection, id_range, wanted, wanted.limit - len(found))
            if len(found) == wanted.limit:
                break
        return found

    def _ids(
        self, connection: Connection, id_range: IdRange, wanted: IndexQuery, limit: int
    ) -> list[int]:
        match, parts = wanted.match, wanted.parts
        number, bounds = id_range.number, [id_range.first, id_range.last]
        trigrams = _trigrams(parts)
        table, asked = (
            (f"words_{number}", _expression(match)) if match else (f"parts_{number}", trigrams)
        )
        sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid BETWEEN ? AND ?"
        values: list[object] = [asked, *bounds]
        if match and parts:
            table = f"parts_{number}"
            sql += f" AND rowid IN (SELECT rowid FROM {table} WHERE {table} MATCH ?"
            sql += " AND rowid BETWEEN ? AND ?)"
            values += [trigrams, *bounds]
        rows = connection.execute(f"{sql} ORDER BY rowid DESC LIMIT ?", [*values, limit])
        return [row[0] for row in rows]

    def matching(
        self, connection: Connection, id_range: IdRange, match: WordMatch, order: str, limit: int
    ) -> list[int]:
        """Return ids of lines that fit, in `order`: ASC or DESC."""
        table = f"words_{id_range.number}"
        rows = connection.execute(
            f"SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid BETWEEN ? AND ?"
            f" ORDER BY rowid {order} LIMIT ?",
            [_expression(match), id_range.first, id_range.last, limit],
        )
        return [row[0] for row in rows]

    def count(self, connection: Connection, number: int, match: WordMatch, most: int) -> int:
        """Count the lines of a partition that fit, `most` at most."""
        table = f"words_{number}"
        rows = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)",
            [_expression(match), most],
        )
        return int(rows.fetchone()[0])


def tables(number: int) -> tuple[str, str]:
    """Return the statements that make the tables of a partition, where there are none."""
    return _WORDS.format(number), _PARTS.format(number)


def inserts(number: int) -> tuple[str, str]:
    """Return the statements that index an `IndexedLine` by words, and an id and text by parts."""
    return (
        f"INSERT INTO words_{number} (rowid, text, tags) VALUES (?, ?, ?)",
        f"INSERT INTO parts_{number} (rowid, text) VALUES (?, ?)",
    )


def _texts(lines: Sequence[IndexedLine]) -> list[tuple[int, str]]:
    return [(event_id, text) for event_id, text, _ in lines]


def _expression(match: WordMatch) -> str:
    """Return what to ask the index of words."""
    wanted = [f"text : ({_any(map(_phrase, group))})" for group in match.words]
    wanted += [f"tags : ({_any(map(_quote, group))})" for group in match.tags]
    lack = [f"text : {_phrase(phrase)}" for phrase in match.no_words]
    lack += [f"tags : {_quote(tag)}" for tag in match.no_tags]
    unwanted = f" NOT ({' OR '.join(lack)})" if lack else ""
    return f"({' AND '.join(wanted)}){unwanted}"


def _trigrams(parts: Iterable[str]) -> str:
    """Return what to ask the index of parts."""
    trigrams: list[str] = []
    for part in parts:
        each = list(dict.fromkeys(part[i : i + 3] for i in range(len(part) - 2)))
        step = max(1, len(each) // _MOST_TRIGRAMS)
        trigrams += each[::step]
    return " AND ".join(map(_quote, trigrams))


def _phrase(phrase: Phrase) -> str:
    return _quote(phrase.text) + (" *" if phrase.prefix else "")


def _any(terms: Iterable[str]) -> str:
    return " OR ".join(dict.fromkeys(terms)) or '"z"'


def _quote(text: str) -> str:
    """Return a string literal of FTS5; a NUL would end the whole query."""
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'
