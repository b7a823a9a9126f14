"""Reads across all stores that share a PostgreSQL database, which create and change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import psycopg

from storage.connection import Dialect, Row, Values
from storage.db.address import PREFIX, SCHEMAS_WITH, PostgresSchema
from storage.db.errors import Unavailable
from storage.db.migration import pending_migrations
from storage.db.postgres.connection import PostgresConnection, adapt, in_one_line, row_factory
from storage.db.postgres.migration import OWNER_HINT, require_locale

_CONNECT_TIMEOUT = 5  # seconds after which a server that does not respond counts as away
_MAY_CREATE = "SELECT has_database_privilege(current_database(), 'CREATE')"
# Backends name their sessions after the schema.
_SESSIONS = (
    "SELECT 1 FROM pg_stat_activity WHERE application_name = ? AND datname = current_database()"
)


def schemas(url: str) -> list[PostgresSchema]:
    """Return the addresses of all stores in a database. Blocks. Raises Unavailable."""
    with _open(url) as connection:
        rows = connection.execute(SCHEMAS_WITH, [PREFIX, "turns"]).fetchall()
    return [PostgresSchema(url, row[0].removeprefix(PREFIX)) for row in rows]


def is_in_use(address: PostgresSchema) -> bool:
    """Return True if a process, on any machine, has the schema open. Blocks. Raises Unavailable."""
    with _open(address.url) as connection:
        return connection.execute(_SESSIONS, [address.schema]).fetchone() is not None


def read_schemas(
    address: PostgresSchema, table: str, query: str, values: Values
) -> dict[str, Sequence[Row]]:
    """Return the rows of a query by store, for each store that has the `table`. Blocks.

    If the database cannot be read, the result has only the stores read so far.
    """
    found: dict[str, Sequence[Row]] = {}
    with suppress(Unavailable), _open(address.url) as connection:
        for (schema,) in connection.execute(SCHEMAS_WITH, [PREFIX, table]).fetchall():
            path = f'"{schema}", public'
            connection.execute("SELECT set_config('search_path', ?, false)", [path])
            found[schema.removeprefix(PREFIX)] = connection.execute(query, values).fetchall()
    return found


@contextmanager
def _open(
    url: str, failed: str = "the database cannot be read", advice: str = ""
) -> Iterator[PostgresConnection]:
    """Open a connection in autocommit mode; its errors are raised as Unavailable."""
    try:
        with psycopg.connect(
            url, autocommit=True, row_factory=row_factory, connect_timeout=_CONNECT_TIMEOUT
        ) as raw:
            adapt(raw)
            yield PostgresConnection(raw)
    except psycopg.Error as error:
        raise Unavailable(f"{failed}: {in_one_line(error)}{advice}") from error


def schema_versions(address: PostgresSchema) -> Mapping[str, int]:
    """Return the schema version of each store in a database by its name; {} for a new database.

    Blocks. Raises Unavailable when the database cannot be reached or used, NewerSchema and
    OlderSchema.
    """
    advice = "; start PostgreSQL, or correct STORAGE_URL ([storage] url)"
    with _open(address.url, f"{address}: cannot be used", advice) as connection:
        connection.raw.read_only = True
        require_locale(connection, address)
        found = {}
        for (schema,) in connection.execute(SCHEMAS_WITH, [PREFIX, "schema_version"]):
            row = connection.execute(f'SELECT version FROM "{schema}".schema_version').fetchone()
            store = PostgresSchema(address.url, schema.removeprefix(PREFIX))
            found[store.name] = row[0] if row else 0
            # Raises if the version is unknown.
            pending_migrations(store, found[store.name], Dialect.POSTGRES)
        row = connection.execute(_MAY_CREATE).fetchone()
        if not found and not (row and row[0]):
            raise Unavailable(f"{address}: the role may not create schemas in it; {OWNER_HINT}")
        return found
