"""Leases: which of several processes that could do a piece of work is the one that does it.

A holder renews its lease in good time; one that is not renewed runs out, and whoever is quickest
has it next. Time is that of the database, so the clocks of machines need not agree. Each new holder
has a higher fencing number: what an old one still writes, who was frozen and does not know that its
time is over, is refused by `Leases.check` in the transaction that would write it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from storage.connection import AsyncConnection, Connection, Dialect
from storage.db.database import Database
from storage.db.errors import StorageError

_NOW = {
    Dialect.SQLITE: "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    Dialect.POSTGRES: "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
}
_FIND = """
SELECT name, holder, fence, known_as, expires - {now} AS left_for, {now} - settled AS settled_for
FROM leases ORDER BY name"""
_ACQUIRE = """
INSERT INTO leases (name, holder, fence, expires, settled)
VALUES (?1, ?2, 1, {now} + ?3, {now})
ON CONFLICT (name) DO UPDATE
    SET holder = excluded.holder, fence = leases.fence + 1, expires = excluded.expires
    WHERE leases.expires <= {now}
RETURNING fence"""
_RENEW = """
UPDATE leases SET expires = {now} + ?4, known_as = coalesce(nullif(?5, ''), known_as),
    settled = coalesce({now} - CAST(?6 AS BIGINT), settled)
WHERE name = ?1 AND holder = ?2 AND fence = ?3"""
_CHECK = {
    Dialect.SQLITE: "SELECT fence FROM leases WHERE name = ?",
    # Whoever takes the lease over waits for the end of our transaction, and then sees its rows.
    Dialect.POSTGRES: "SELECT fence FROM leases WHERE name = ? FOR SHARE",
}


class LeaseLost(StorageError):
    """Another process holds the lease now and does the work."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it stands. `left` is the time until it runs out, negative when it has; `settled`
    how long ago that was until which its holder has logged all it heard."""

    name: str
    holder: str
    fence: int
    known_as: str
    left: timedelta
    settled: timedelta

    @property
    def is_held(self) -> bool:
        """True until it has run out."""
        return self.left > timedelta()


@dataclass(frozen=True, slots=True)
class Renewal:
    """The news of a holder with which it renews a lease: what it is called where it works ("" when
    it does not know), and `settled` as in `Lease`, None for no news."""

    known_as: str = ""
    settled: timedelta | None = None


class Leases:
    """The leases in a database that one process, `holder`, may hold."""

    def __init__(self, database: Database, holder: str) -> None:
        self._database, self._holder = database, holder
        self._now = _NOW[database.dialect]
        self._fences: dict[str, int] = {}

    async def find(self, prefix: str) -> Sequence[Lease]:
        """Return the leases that were ever held whose names begin so, by name. Raises
        Unavailable."""
        rows = await self._database.fetch_all(_FIND.format(now=self._now))
        return [
            Lease(
                row["name"],
                row["holder"],
                row["fence"],
                row["known_as"],
                timedelta(microseconds=row["left_for"]),
                timedelta(microseconds=row["settled_for"]),
            )
            for row in rows
            if row["name"].startswith(prefix)
        ]

    async def acquire(self, names: Collection[str], duration: timedelta) -> bool:
        """Take all of these leases, or none when somebody holds one of them; whether they are ours.
        Raises Unavailable."""
        sql, fences = _ACQUIRE.format(now=self._now), {}
        try:
            async with self._database.transaction(exclusive=False) as db:
                for name in sorted(names):  # in one order, so that no two wait for each other
                    values = [name, self._holder, _micros(duration)]
                    async with db.execute(sql, values) as cursor:
                        row = await cursor.fetchone()
                    if row is None:
                        raise _Taken
                    fences[name] = int(row[0])
        except _Taken:
            return False
        self._fences = fences
        return True

    async def renew(self, renewals: Mapping[str, Renewal], duration: timedelta) -> None:
        """Hold the leases for another `duration` from now, also when they have run out and nobody
        has taken them. Raises LeaseLost and Unavailable."""
        async with self._database.transaction(exclusive=False) as db:
            for name, fence in self._fences.items():
                news = renewals.get(name, Renewal())
                settled = None if news.settled is None else _micros(news.settled)
                values = [name, self._holder, fence, _micros(duration), news.known_as, settled]
                await self._update(db, _RENEW.format(now=self._now), values)

    async def release(self) -> None:
        """Let go of all leases that are still ours. Raises Unavailable."""
        fences, self._fences = self._fences, {}
        async with self._database.transaction(exclusive=False) as db:
            for name, fence in fences.items():
                await db.execute(
                    "UPDATE leases SET expires = 0 WHERE name = ? AND holder = ? AND fence = ?",
                    [name, self._holder, fence],
                )

    def check(self, db: Connection) -> None:
        """Make sure, for the transaction that `db` is in, that nobody has taken our leases over.
        Raises LeaseLost."""
        for name, fence in self._fences.items():
            row = db.execute(_CHECK[db.dialect], [name]).fetchone()
            if row is None or row[0] != fence:
                raise _lost(name)

    async def _update(self, db: AsyncConnection, sql: str, values: Sequence[object]) -> None:
        cursor = await db.execute(sql, values)
        if cursor.rowcount != 1:
            raise _lost(str(values[0]))


class _Taken(Exception):
    """A lease that somebody holds; it undoes the transaction."""


def _lost(name: str) -> LeaseLost:
    return LeaseLost(f"another process has taken over {name}")


def _micros(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
