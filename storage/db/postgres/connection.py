"""Connections to PostgreSQL that understand the SQL of the stores.

The cursors of psycopg 3 resemble SQLite's. The differences are translated here: placeholders, rows
by name and position, and the types of values. Text is sent as a literal of unknown type, so that a
`citext` column compares it without case, as SQLite's NOCASE does; a boolean is sent as 1 or 0,
because the columns hold numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.types.string import StrDumperUnknown

from storage.connection import Dialect, Values
from storage.db.errors import ServerAway, Unavailable

_TOKEN = re.compile(
    r"""
      (?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | \?(?P<number>\d*)
    | (?<![:\w]):(?P<name>[a-z]\w*)
    | (?P<percent>%)
    """,
    re.VERBOSE,
)
_MIN_ROWS_FOR_COPY = 20
# Connection exceptions, too many connections, and the shutdown, crash or start of the server.
_AWAY_STATES = ("08", "53300", "57P01", "57P02", "57P03")
_AWAY_TEXTS = (
    "starting up",
    "shutting down",
    "in recovery",
    "not yet accepting",
    "terminating connection",
    "too many",
    "connection slots",
)
_NUL, _REPLACEMENT = "\0", "\N{REPLACEMENT CHARACTER}"  # PostgreSQL cannot store NUL in text


@lru_cache(1_024)
def translate(sql: str) -> bytes:
    """Return a statement with psycopg's placeholders instead of SQLite's. Text in quotes is left
    alone, but a question mark in a comment or in dollar quotes would become a placeholder."""

    def placeholder(match: re.Match[str]) -> str:
        # psycopg reads every % as the start of a placeholder, in string literals too.
        if match["quoted"] is not None:
            return match["quoted"].replace("%", "%%")
        if match["percent"]:
            return "%%"
        if match["name"]:
            return f"%({match['name']})s"
        return f"%(p{match['number']})s" if match["number"] else "%s"

    return _TOKEN.sub(placeholder, sql).encode()


def _named(values: Values) -> Values:
    if isinstance(values, Mapping):
        return values
    return {f"p{number}": value for number, value in enumerate(values, 1)}


def in_one_line(error: psycopg.Error) -> str:
    """Return the first line of an error; the details below it may contain values of rows."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def unavailable(error: psycopg.Error, what: str) -> Unavailable:
    """Return the error of storage for one of psycopg; `what` says what cannot be done. It is a
    ServerAway if trying again later may help, as the server or the connection is missing."""
    text = str(error)
    if error.sqlstate is not None:
        is_away = error.sqlstate.startswith(_AWAY_STATES)
    else:  # libpq gives no code for a refused connection: a wrong name or password is FATAL as well
        is_away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
            "FATAL:" not in text or any(each in text for each in _AWAY_TEXTS)
        )
    return (ServerAway if is_away else Unavailable)(f"{what}: {in_one_line(error)}")


class PostgresRow(tuple[Any, ...]):
    """A row with access to its values by position and by column name."""

    __slots__ = ()
    places: ClassVar[Mapping[str, int]]

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.places[key] if isinstance(key, str) else key)

    def __repr__(self) -> str:
        return f"<PostgresRow of {', '.join(self.places)}>"

    def keys(self) -> list[str]:
        return list(self.places)


@lru_cache(1_024)
def _row_type(*columns: str) -> type[PostgresRow]:
    places = {name: place for place, name in enumerate(columns)}
    return type("PostgresRow", (PostgresRow,), {"__slots__": (), "places": places})


def row_factory(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> Any:
    """Return the type of the rows of a result, which psycopg calls for each."""
    return _row_type(*(column.name for column in cursor.description or ()))


class _BoolDumper(Dumper):
    """Sends booleans as 1 and 0 of unknown type, valid both as a condition and as a number."""

    def dump(self, obj: bool) -> Buffer:
        return b"1" if obj else b"0"


class _TextDumper(StrDumperUnknown):
    """Sends text with each NUL replaced, since PostgreSQL cannot store it."""

    def dump(self, obj: str) -> Buffer:
        return super().dump(obj.replace(_NUL, _REPLACEMENT) if _NUL in obj else obj) or b""


class _NumericLoader(Loader):
    """Loads `numeric` as int where possible: PostgreSQL's sum() of BIGINT returns `numeric`."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


def adapt(context: AdaptContext) -> None:
    """Register the conversions of values that the stores expect on a connection."""
    adapters = context.adapters
    assert adapters is not None
    adapters.register_dumper(bool, _BoolDumper)
    adapters.register_dumper(str, _TextDumper)
    adapters.register_loader("numeric", _NumericLoader)


class PostgresConnection:
    """A psycopg connection as a `Connection`."""

    dialect = Dialect.POSTGRES

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.raw = connection

    def execute(self, sql: str, values: Values = (), /) -> psycopg.Cursor[Any]:
        query = translate(sql)
        return self.raw.execute(query, _named(values) if b"%(p1)s" in query else values)

    def executemany(self, sql: str, values: Iterable[Values], /) -> psycopg.Cursor[Any]:
        """Run a statement once for each set of values, in one pipeline."""
        cursor = self.raw.cursor()
        query = translate(sql)
        numbered = b"%(p1)s" in query
        cursor.executemany(query, [_named(each) if numbered else each for each in values])
        return cursor

    def insert_rows(self, into: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Insert rows, by COPY if there are many, as that costs one more round trip."""
        if len(rows) >= _MIN_ROWS_FOR_COPY:
            with self.raw.cursor().copy(f"COPY {into} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
        elif rows:
            self.executemany(f"INSERT INTO {into} VALUES ({', '.join('?' * len(rows[0]))})", rows)
