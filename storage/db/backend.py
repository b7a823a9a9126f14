"""The interface of a database backend, implemented for SQLite and for PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from storage.connection import AsyncConnection, Connection, Row, Values

T = TypeVar("T")


class Backend(Protocol):
    """An open database. `Database` documents the methods; all of them raise Unavailable."""

    def transaction(
        self, *, exclusive: bool = True
    ) -> AbstractAsyncContextManager[AsyncConnection]:
        """Yield a connection in a transaction."""

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, inline: bool = False
    ) -> T:
        """Run `work` in one transaction and return its result."""

    async def read(self, work: Callable[[Connection], T], *, inline: bool = False) -> T:
        """Run `work` on one snapshot and return its result."""

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return every row of a query."""

    async def sync(self) -> None:
        """Make all commits so far durable."""

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        """Run a statement that is not allowed inside a transaction, and return its rows."""

    def changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever the log may have changed, for ever."""
