"""Leases: they decide which one of several processes does a piece of work.

A holder renews its lease before it expires; an expired one goes to the first that acquires it. Time
is that of the database, so the clocks of machines need not agree. Each new holder gets a higher
fencing number: if an earlier holder was suspended and does not know that its lease has expired,
`Leases.check` refuses its writes, in the transaction that would make them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from storage.connection import Connection, Dialect
from storage.db.database import Database
from storage.db.errors import StorageError

_MICROSECOND = timedelta(microseconds=1)
# Microseconds since 1970, whose Julian day is 2440587.5. In PostgreSQL now() would be the start of
# the transaction, which may have waited long for a lock since.
_NOW = {
    Dialect.SQLITE: "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    Dialect.POSTGRES: "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
}
_FIND = """
SELECT name, holder, fence, known_as, expires - {now}, {now} - settled
FROM leases ORDER BY name"""
# Returns no row if the lease is held, also by ourselves.
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
    # The row lock makes a process that takes the lease over wait for the end of our transaction,
    # whose rows it then sees.
    Dialect.POSTGRES: "SELECT fence FROM leases WHERE name = ? FOR SHARE",
}


class LeaseLost(StorageError):
    """Another process holds the lease now and does the work."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it was read.

    `left` is the time until it expires, negative afterwards. `settled` is the age of the holder's
    watermark: all that it received before this is in the log. `known_as` is the name that the
    holder has where it works, as its mask on an IRC network.
    """

    name: str
    holder: str
    fence: int
    known_as: str
    left: timedelta
    settled: timedelta

    @property
    def is_held(self) -> bool:
        """True until it has expired."""
        return self.left > timedelta()


@dataclass(frozen=True, slots=True)
class Renewal:
    """The state that a holder publishes with a renewal: `known_as` and `settled` of `Lease`, "" and
    None if they are unchanged or unknown."""

    known_as: str = ""
    settled: timedelta | None = None


class Leases:
    """The leases in a database, for one process, the `holder`."""

    def __init__(self, database: Database, holder: str) -> None:
        self._database, self._holder = database, holder
        self._now = _NOW[database.dialect]
        self._fences: dict[str, int] = {}

    async def find(self, prefix: str) -> Sequence[Lease]:
        """Return all leases, expired ones included, whose names begin with `prefix`, in order of
        name. Raises Unavailable."""
        rows = await self._database.fetch_all(_FIND.format(now=self._now))
        return [
            Lease(name, holder, fence, known_as, left * _MICROSECOND, age * _MICROSECOND)
            for name, holder, fence, known_as, left, age in rows
            if name.startswith(prefix)
        ]

    async def acquire(self, names: Collection[str], duration: timedelta) -> bool:
        """Acquire all of these leases and return True, or none and return False if one of them is
        held. Raises Unavailable."""
        sql, fences = _ACQUIRE.format(now=self._now), {}

        def insert(db: Connection) -> None:
            for name in sorted(names):  # all lock in the same order, so there is no deadlock
                row = db.execute(sql, [name, self._holder, duration // _MICROSECOND]).fetchone()
                if row is None:
                    raise _Taken
                fences[name] = int(row[0])

        try:
            await self._database.write(insert, exclusive=False)
        except _Taken:
            return False
        self._fences = fences
        return True

    async def renew(self, renewals: Mapping[str, Renewal], duration: timedelta) -> None:
        """Extend our leases to `duration` from now, even if they have expired, as long as nobody
        else has acquired them. Raises LeaseLost and Unavailable."""
        lasting = duration // _MICROSECOND

        def update(db: Connection) -> None:
            for name, fence in self._fences.items():
                news = renewals.get(name, Renewal())
                settled = None if news.settled is None else news.settled // _MICROSECOND
                values = [name, self._holder, fence, lasting, news.known_as, settled]
                if db.execute(_RENEW.format(now=self._now), values).rowcount != 1:
                    raise _lost(name)

        await self._database.write(update, exclusive=False)

    async def release(self) -> None:
        """Expire all leases that are still ours, so that others can acquire them. Raises
        Unavailable."""
        sql = "UPDATE leases SET expires = 0 WHERE name = ? AND holder = ? AND fence = ?"
        rows = [[name, self._holder, fence] for name, fence in self._fences.items()]
        self._fences = {}
        await self._database.write(lambda db: db.executemany(sql, rows), exclusive=False)

    def check(self, db: Connection) -> None:
        """Check the fencing numbers of our leases in the transaction of `db`. Raises LeaseLost if
        somebody else has acquired one."""
        for name, fence in self._fences.items():
            row = db.execute(_CHECK[db.dialect], [name]).fetchone()
            if row is None or row[0] != fence:
                raise _lost(name)


class _Taken(Exception):
    """A lease is held by somebody; raised to roll the transaction back."""


def _lost(name: str) -> LeaseLost:
    return LeaseLost(f"another process has taken over {name}")
