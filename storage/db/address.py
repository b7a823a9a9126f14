"""Addresses of stores: each tendril has its own SQLite file, or its own PostgreSQL schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

PREFIX = "terrarium_"
"""The prefix of our schemas' names."""

SCHEMAS_WITH = """
SELECT nspname FROM pg_namespace WHERE starts_with(nspname, ?)
    AND to_regclass(quote_ident(nspname) || '.' || CAST(? AS TEXT)) IS NOT NULL ORDER BY 1"""
"""Query for the names of our schemas that have a table; bind `PREFIX` and the table's name."""


@dataclass(frozen=True, slots=True)
class PostgresSchema:
    """The schema of a tendril in a PostgreSQL database; `name` is that of the corresponding
    SQLite file without suffix. `url`, a libpq URI, may hold a password: neither `repr` nor `str`
    shows it."""

    url: str = field(repr=False)
    name: str

    @property
    def schema(self) -> str:
        """The name of the schema."""
        return f"{PREFIX}{self.name}"

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        place = parts.hostname or "localhost"
        # The colons of user:password and of an IPv6 address in brackets separate no port.
        if ":" in parts.netloc.rpartition("@")[2].rpartition("]")[2]:
            place += f" port {parts.netloc.rpartition(':')[2]}"
        return f"PostgreSQL database {parts.path.lstrip('/') or 'default'} on {place}, {self.name}"


Address = Path | PostgresSchema
