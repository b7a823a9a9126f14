"""The full-text index in PostgreSQL: a table per partition, with GIN indexes on words and parts.

`words` is a tsvector that is built here instead of by `to_tsvector`, so that text is split into the
same words as in SQLite. Its lexemes are the words of a line with their positions, and its tags,
which begin with a colon, as no word does.
`parts` is the lower-case text under pg_trgm, which finds any substring that has three consecutive
letters or digits; for other substrings it reads the whole partition. In the locale C, the only one
that folds case as SQLite does, ASCII letters alone count as letters there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage.connection import Connection
from storage.text_index.model import IdRange, IndexedLine, IndexQuery, Phrase, WordMatch
from storage.text_index.words import escape_like, fold, words

# Limits of the type tsvector, or just below them.
_LAST_POSITION = 16_383  # of a word
_MAX_POSITIONS = 255  # of one lexeme
_MAX_LEXEME_SIZE = 2_000  # bytes of a lexeme
_TABLE = """
CREATE TABLE IF NOT EXISTS words_{0} (
    rowid BIGINT PRIMARY KEY, words TSVECTOR NOT NULL, parts TEXT NOT NULL
)"""
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS words_{0}_words ON words_{0} USING gin (words)",
    "CREATE INDEX IF NOT EXISTS words_{0}_parts ON words_{0} USING gin (parts gin_trgm_ops)",
)
# A bulk import collects its entries in GIN's pending list, which is then merged in the order of
# words: the tree is descended once for each word instead of once for each word of each line.
_ALL_PENDING = ("SET LOCAL gin_pending_list_limit = '64MB'", "SET LOCAL work_mem = '64MB'")
_INDEX_PENDING = (
    "SELECT gin_clean_pending_list('words_{0}_words'), gin_clean_pending_list('words_{0}_parts')"
)
_BULK_LINES = 500  # lines from which on `add` is a bulk import
_EXISTS = "SELECT to_regclass(?) IS NOT NULL"


class TsvectorIndex:
    """The full-text index as tables of tsvectors."""

    def add(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        if not connection.execute(_EXISTS, [f"words_{number}"]).fetchone()[0]:
            connection.execute(_TABLE.format(number))
            for index in _INDEXES:
                connection.execute(index.format(number))
        if len(lines) >= _BULK_LINES:
            for setting in _ALL_PENDING:
                connection.execute(setting)
        connection.insert_rows(
            f"words_{number}",
            [(event_id, _vector(text, tags), text.lower()) for event_id, text, tags in lines],
        )
        if len(lines) >= _BULK_LINES:
            connection.execute(_INDEX_PENDING.format(number))

    def remove(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        """Remove lines, by id."""
        sql = f"DELETE FROM words_{number} WHERE rowid = ?"
        connection.executemany(sql, [line[:1] for line in lines])

    def merge(self, connection: Connection, number: int, *, begin: bool) -> bool:
        """Do nothing and return False: VACUUM removes what deleted rows leave behind."""
        return False

    def drop(self, connection: Connection, number: int) -> None:
        connection.execute(f"DROP TABLE words_{number}")

    def ids(
        self, connection: Connection, ranges: Sequence[IdRange], wanted: IndexQuery
    ) -> list[int]:
        """Return at most `wanted.limit` ids from `ranges`, which are in the wanted order."""
        where, values = "", []
        if wanted.match:
            where, values = " AND words @@ CAST(? AS tsquery)", [_query(wanted.match)]
        for part in wanted.parts:
            where += " AND parts LIKE ?"
            values.append(f"%{escape_like(part.lower())}%")
        end = f" ORDER BY rowid {wanted.order} LIMIT {wanted.limit}"
        each = [
            f"SELECT rowid FROM words_{id_range.number} WHERE rowid BETWEEN ? AND ?{where}{end}"
            for id_range in ranges
        ]
        sql = each[0] if len(each) == 1 else f"({') UNION ALL ('.join(each)}){end}"
        bound = [value for each in ranges for value in (each.first, each.last, *values)]
        return [row[0] for row in connection.execute(sql, bound)]

    def count(self, connection: Connection, number: int, match: WordMatch, most: int) -> int:
        rows = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM words_{number}"
            " WHERE words @@ CAST(? AS tsquery) LIMIT ?) AS found",
            [_query(match), most],
        )
        return int(rows.fetchone()[0])


def _vector(text: str, tags: str) -> str:
    # A word that occurs only after the last position is not indexed: PostgreSQL would give all of
    # those the same position, and could find a phrase that nobody wrote.
    positions: dict[str, list[int]] = {}
    for position, word in enumerate(_lexemes(text), 1):
        places = positions.setdefault(word, [])
        if len(places) < _MAX_POSITIONS and position <= _LAST_POSITION:
            places.append(position)
    parts = [f"{_quote(word)}:{','.join(map(str, at))}" for word, at in positions.items() if at]
    return " ".join([*parts, *(_quote(f":{tag}") for tag in tags.split())])


def _query(match: WordMatch) -> str:
    # A phrase without any word is left out, as an empty operand is a syntax error.
    wanted = [_any(map(_phrase, group)) for group in match.words]
    # An empty group of tags must match no line; no tag is just a colon.
    wanted += [_any(_quote(f":{tag}") for tag in group or ("",)) for group in match.tags]
    lack = [*map(_phrase, match.no_words), *(_quote(f":{tag}") for tag in match.no_tags)]
    unwanted = [f"!{_any(lack)}"] if any(lack) else []
    return " & ".join([*filter(None, wanted), *unwanted])


def _phrase(phrase: Phrase) -> str:
    each = [_quote(word) for word in _lexemes(phrase.text)]
    if each and phrase.prefix:
        each[-1] += ":*"
    return f"({' <-> '.join(each)})" if each else ""


def _any(terms: Iterable[str]) -> str:
    each = " | ".join(dict.fromkeys(filter(None, terms)))
    return f"({each})" if each else ""


def _lexemes(text: str) -> list[str]:
    return [
        word  # UTF-8 has at most four bytes for a character
        if len(word) < _MAX_LEXEME_SIZE // 4
        else word.encode()[:_MAX_LEXEME_SIZE].decode(errors="ignore")
        for word in words(fold(text))
    ]


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
