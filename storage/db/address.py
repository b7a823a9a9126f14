"""Where the tables of a tendril are kept: in a file of its own, or in a schema of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

PREFIX = "terrarium_"
"""What the names of our schemas begin with."""


@dataclass(frozen=True, slots=True)
class PostgresSchema:
    """The tables of one tendril in a PostgreSQL database: what a file is with SQLite.

    `url` is a connection URI of libpq, which may hold a password; `name` is what the file would be
    called, without its ending.
    """

    url: str = field(repr=False)
    name: str

    @property
    def schema(self) -> str:
        """The name of the schema."""
        return f"{PREFIX}{self.name}"

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        place = parts.hostname or "localhost"
        if ":" in parts.netloc.rpartition("@")[2].rpartition("]")[2]:
            place += f" port {parts.netloc.rpartition(':')[2]}"
        return f"PostgreSQL database {parts.path.lstrip('/') or 'default'} on {place}, {self.name}"


Address = Path | PostgresSchema


def beside(address: Address, name: str) -> Address:
    """Return the address of the tables called `name` in the same folder or database."""
    if isinstance(address, Path):
        return address.with_name(f"{name}.db")
    return PostgresSchema(address.url, name)
