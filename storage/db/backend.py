"""The seam between SQLite and PostgreSQL: the methods of a kind of database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from storage.connection import AsyncConnection, Connection, Row, Values

T = TypeVar("T")


class Backend(Protocol):
    """An open database. All raise Unavailable; `Database` says what each does."""

    def transaction(
        self, *, exclusive: bool = True
    ) -> AbstractAsyncContextManager[AsyncConnection]:
        """Yield a connection in a transaction."""

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, inline: bool = False
    ) -> T:
        """Return the result of `work`, run in one transaction."""

    async def read(self, work: Callable[[Connection], T], *, inline: bool = False) -> T:
        """Return the result of `work`, run on one snapshot."""

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return every row of a query."""

    async def sync(self) -> None:
        """Make durable all that has been committed."""

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        """Return the rows of a statement that no transaction may contain."""

    def changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever somebody may have written, for ever."""
