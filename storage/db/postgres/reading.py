"""Reading the same table of every tendril that shares a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from storage.connection import Row, Values
from storage.db.address import PREFIX, PostgresSchema
from storage.db.postgres.connection import PostgresConnection, adapt, row_factory

_SCHEMAS = """
SELECT nspname FROM pg_namespace WHERE starts_with(nspname, ?)
    AND to_regclass(quote_ident(nspname) || '.' || CAST(? AS TEXT)) IS NOT NULL ORDER BY 1"""


def read_schemas(
    address: PostgresSchema, table: str, query: str, values: Values
) -> dict[str, Sequence[Row]]:
    """Return the rows of a query by the name of each store that has the `table`; nothing of a
    database that cannot be read. Blocks."""
    found: dict[str, Sequence[Row]] = {}
    try:
        with psycopg.connect(address.url, autocommit=True, row_factory=row_factory) as raw:
            adapt(raw)
            connection = PostgresConnection(raw)
            for (schema,) in connection.execute(_SCHEMAS, [PREFIX, table]).fetchall():
                path = f'"{schema}", public'
                connection.execute("SELECT set_config('search_path', ?, false)", [path])
                found[schema.removeprefix(PREFIX)] = connection.execute(query, values).fetchall()
    except psycopg.Error:
        return found
    return found
