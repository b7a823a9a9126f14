"""Reads across all stores that share a PostgreSQL database, which create and change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg

from storage.connection import Dialect, Row, Values
from storage.db.address import PREFIX, PostgresSchema
from storage.db.errors import Unavailable
from storage.db.migration import pending_migrations
from storage.db.postgres.connection import (
    PostgresConnection,
    adapt,
    in_one_line,
    row_factory,
    translate,
)
from storage.db.postgres.migration import OWNER_HINT, require_locale

SCHEMAS_WITH = """
SELECT nspname FROM pg_namespace WHERE starts_with(nspname, ?)
    AND to_regclass(quote_ident(nspname) || '.' || CAST(? AS TEXT)) IS NOT NULL ORDER BY 1"""
"""Query for the names of our schemas that have a table; bind `PREFIX` and the table's name."""

_CONNECT_TIMEOUT = 5  # seconds after which a server that does not respond counts as away
_MAY_CREATE = "SELECT has_database_privilege(current_database(), 'CREATE')"
# Backends name their sessions after the schema.
_SESSIONS = (
    "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
)


def schemas(url: str) -> list[PostgresSchema]:
    """Return the addresses of all stores in a database. Blocks. Raises Unavailable."""
    try:
        with psycopg.connect(url) as raw:
            rows = raw.execute(translate(SCHEMAS_WITH), [PREFIX, "turns"]).fetchall()
    except psycopg.Error as error:
        raise Unavailable(f"the database cannot be read: {in_one_line(error)}") from error
    return [PostgresSchema(url, row[0].removeprefix(PREFIX)) for row in rows]


def is_in_use(address: PostgresSchema) -> bool:
    """Return True if a process, on any machine, has the schema open. Blocks. Raises Unavailable."""
    try:
        with psycopg.connect(address.url, autocommit=True) as raw:
            return raw.execute(_SESSIONS, [address.schema]).fetchone() is not None
    except psycopg.Error as error:
        raise Unavailable(f"the database cannot be read: {in_one_line(error)}") from error


def read_schemas(
    address: PostgresSchema, table: str, query: str, values: Values
) -> dict[str, Sequence[Row]]:
    """Return the rows of a query by store, for each store that has the `table`. Blocks.

    If the database cannot be read, the result has only the stores read so far.
    """
    found: dict[str, Sequence[Row]] = {}
    try:
        with psycopg.connect(address.url, autocommit=True, row_factory=row_factory) as raw:
            adapt(raw)
            connection = PostgresConnection(raw)
            for (schema,) in connection.execute(SCHEMAS_WITH, [PREFIX, table]).fetchall():
                path = f'"{schema}", public'
                connection.execute("SELECT set_config('search_path', ?, false)", [path])
                found[schema.removeprefix(PREFIX)] = connection.execute(query, values).fetchall()
    except psycopg.Error:
        return found
    return found


def schema_versions(address: PostgresSchema) -> Mapping[str, int]:
    """Return the schema version of each store in a database by its name; {} for a new database.

    Blocks. Raises Unavailable when the database cannot be reached or used, NewerSchema and
    OlderSchema.
    """
    try:
        with psycopg.connect(
            address.url, autocommit=True, row_factory=row_factory, connect_timeout=_CONNECT_TIMEOUT
        ) as raw:
            adapt(raw)
            raw.read_only = True
            connection = PostgresConnection(raw)
            require_locale(connection, address)
            found = {}
            for (schema,) in connection.execute(SCHEMAS_WITH, [PREFIX, "schema_version"]):
                row = connection.execute(
                    f'SELECT version FROM "{schema}".schema_version'
                ).fetchone()
                store = PostgresSchema(address.url, schema.removeprefix(PREFIX))
                found[store.name] = row[0] if row else 0
                # Raises if the version is unknown.
                pending_migrations(store, found[store.name], Dialect.POSTGRES)
            row = connection.execute(_MAY_CREATE).fetchone()
            if not found and not (row and row[0]):
                raise Unavailable(f"{address}: the role may not create schemas in it; {OWNER_HINT}")
            return found
    except psycopg.Error as error:
        raise Unavailable(
            f"{address}: cannot be used: {in_one_line(error)}; start PostgreSQL, or correct"
            " STORAGE_URL ([storage] url)"
        ) from error
