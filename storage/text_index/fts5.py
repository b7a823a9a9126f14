"""The full-text index in SQLite: one pair of FTS5 tables for each partition.

`words_N` indexes whole words, and in its second column the tags of a line. `parts_N` is a trigram
index for substrings, addresses, code and scripts without spaces. It stores no positions
(`detail=none`), so its hits are candidates whose text the caller must check. Neither table stores
the text or its size. User text is always quoted: nothing that people type can be an FTS5 operator
or a syntax error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage.connection import Connection
from storage.text_index.model import IdRange, IndexedLine, IndexQuery, Phrase, WordMatch

_PAGES_PER_MERGE = 256  # pages of a table that one step of `merge` writes, about
_MAX_TRIGRAMS = 12  # taken from one part: so many match hardly any other text
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
    """The full-text index as pairs of FTS5 tables."""

    def add(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        """Index lines in the transaction that stores them, creating the partition if necessary."""
        for table in tables(number):
            connection.execute(table)
        words, parts = inserts(number)
        connection.executemany(words, lines)
        connection.executemany(parts, _texts(lines))

    def remove(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        """Remove lines, whose text and tags must be exactly those that were added."""
        # A contentless table does not know what it has indexed. 'delete' is given the same values
        # again; others would leave a corrupt index.
        connection.executemany(
            f"INSERT INTO words_{number} (words_{number}, rowid, text, tags)"
            " VALUES ('delete', ?, ?, ?)",
            lines,
        )
        sql = f"INSERT INTO parts_{number} (parts_{number}, rowid, text) VALUES ('delete', ?, ?)"
        connection.executemany(sql, _texts(lines))

    def merge(self, connection: Connection, number: int, *, begin: bool) -> bool:
        """Run one step of an incremental merge; return True while there is more to merge."""
        # A negative number begins a merge of all segments into one, positive ones go on with it.
        pages = -_PAGES_PER_MERGE if begin else _PAGES_PER_MERGE
        before = connection.execute(_CHANGES).fetchone()[0]
        for table in (f"words_{number}", f"parts_{number}"):
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", [pages])
        # Each of the two statements counts as one change even if it has nothing to merge.
        return int(connection.execute(_CHANGES).fetchone()[0]) - int(before) > 2

    def drop(self, connection: Connection, number: int) -> None:
        """Drop the tables of a partition."""
        connection.execute(f"DROP TABLE words_{number}")
        connection.execute(f"DROP TABLE parts_{number}")

    def ids(
        self, connection: Connection, ranges: Sequence[IdRange], wanted: IndexQuery
    ) -> list[int]:
        """Return at most `wanted.limit` candidate ids from `ranges`, which are in its order."""
        match, parts = wanted.match, wanted.parts
        # What may have the parts, as hits are checked against the text. Without positions FTS5
        # allows no phrase of several trigrams, only their conjunction, and evenly spaced ones of a
        # long part will do.
        chosen: list[str] = []
        for part in parts:
            each = list(dict.fromkeys(part[i : i + 3] for i in range(len(part) - 2)))
            chosen += each[:: -(-len(each) // _MAX_TRIGRAMS) or 1]  # rounded up
        trigrams = " AND ".join(map(_quote, chosen))
        found: list[int] = []
        for id_range in ranges:
            number, bounds = id_range.number, [id_range.first, id_range.last]
            table, asked = (
                (f"words_{number}", _expression(match)) if match else (f"parts_{number}", trigrams)
            )
            sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid BETWEEN ? AND ?"
            values: list[object] = [asked, *bounds]
            if match and parts:
                # The subquery is evaluated by itself, so it is given the range of ids as well.
                table = f"parts_{number}"
                sql += f" AND rowid IN (SELECT rowid FROM {table} WHERE {table} MATCH ?"
                sql += " AND rowid BETWEEN ? AND ?)"
                values += [trigrams, *bounds]
            sql += f" ORDER BY rowid {wanted.order} LIMIT ?"
            rows = connection.execute(sql, [*values, wanted.limit - len(found)])
            found += [row[0] for row in rows]
            if len(found) == wanted.limit:
                break
        return found

    def count(self, connection: Connection, number: int, match: WordMatch, most: int) -> int:
        """Count the matching lines of a partition, up to `most`."""
        table = f"words_{number}"
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)"
        rows = connection.execute(sql, [_expression(match), most])
        return int(rows.fetchone()[0])


def tables(number: int) -> tuple[str, str]:
    """Return the statements that create the tables of a partition unless they exist."""
    return _WORDS.format(number), _PARTS.format(number)


def inserts(number: int) -> tuple[str, str]:
    """Return the INSERT statements for `words_N`, with the values of an `IndexedLine`, and for
    `parts_N`, with an id and a text."""
    return (
        f"INSERT INTO words_{number} (rowid, text, tags) VALUES (?, ?, ?)",
        f"INSERT INTO parts_{number} (rowid, text) VALUES (?, ?)",
    )


def _texts(lines: Sequence[IndexedLine]) -> list[tuple[int, str]]:
    return [(event_id, text) for event_id, text, _ in lines]


def _expression(match: WordMatch) -> str:
    # Each term names its column: else what people type could match the tags.
    wanted = [f"text : ({_any(map(_phrase, group))})" for group in match.words]
    wanted += [f"tags : ({_any(map(_quote, group))})" for group in match.tags]
    lack = [f"text : {_phrase(phrase)}" for phrase in match.no_words]
    lack += [f"tags : {_quote(tag)}" for tag in match.no_tags]
    unwanted = f" NOT ({' OR '.join(lack)})" if lack else ""
    return f"({' AND '.join(wanted)}){unwanted}"


def _phrase(phrase: Phrase) -> str:
    return _quote(phrase.text) + (" *" if phrase.prefix else "")


def _any(terms: Iterable[str]) -> str:
    # An empty group must match no line; "z" is the beginning of all tags, and none itself.
    return " OR ".join(dict.fromkeys(terms)) or '"z"'


def _quote(text: str) -> str:
    """Return a text as an FTS5 string; NULs become blanks, as one would end the whole query."""
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'
