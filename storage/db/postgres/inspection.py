"""Read-only inspection of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from storage.connection import Dialect, Row
from storage.db.address import PREFIX, PostgresSchema
from storage.db.errors import Unavailable
from storage.db.migration import pending_migrations
from storage.db.postgres.connection import (
    PostgresConnection,
    adapt,
    in_one_line,
    row_factory,
)
from storage.db.postgres.migration import OWNER_HINT, require_locale
from storage.db.postgres.reading import SCHEMAS_WITH

_CONNECT_TIMEOUT = 5  # seconds after which a server that does not respond counts as away
_MAY_CREATE = "SELECT has_database_privilege(current_database(), 'CREATE')"


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
            found = _versions(connection, address)
            if not found and not _first(connection.execute(_MAY_CREATE).fetchone()):
                raise Unavailable(f"{address}: the role may not create schemas in it; {OWNER_HINT}")
            return found
    except psycopg.Error as error:
        raise Unavailable(
            f"{address}: cannot be used: {in_one_line(error)}; start PostgreSQL, or correct"
            " STORAGE_URL ([storage] url)"
        ) from error


def _versions(connection: PostgresConnection, address: PostgresSchema) -> dict[str, int]:
    found = {}
    for (schema,) in connection.execute(SCHEMAS_WITH, [PREFIX, "schema_version"]).fetchall():
        row = connection.execute(f'SELECT version FROM "{schema}".schema_version').fetchone()
        store = PostgresSchema(address.url, schema.removeprefix(PREFIX))
        found[store.name] = _first(row)
        pending_migrations(store, found[store.name], Dialect.POSTGRES)  # raises if it is unknown
    return found


def _first(row: Row | None) -> int:
    return int(row[0]) if row else 0
