"""Logins of browsers at the web tendril, until they log out or expire.

The secret of a login is 256 random bits in a cookie. The file has its hash only, so nobody who
reads a backup can log in with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256

from storage.db.database import Connection, Database, Repository, to_micros, writes

LIFETIME = timedelta(days=365)
MAX_LOGINS = 1_000
"""The most logins at a time; a further one ends the oldest."""


class WebLogins(Repository):
    """The logins in a database file."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        super().__init__(database)
        self._now = now

    @writes
    def add(self, db: Connection, token_fingerprint: str) -> str:
        """Add a login with the fingerprint of its token; return its secret, for the cookie."""
        secret, now = secrets.token_urlsafe(32), self._now()
        db.execute("DELETE FROM web_logins WHERE expires <= ?", [to_micros(now)])
        # Room for one more. The lifetime is constant, so the order of expiry is that of age.
        db.execute(
            "DELETE FROM web_logins WHERE id IN"
            " (SELECT id FROM web_logins ORDER BY expires DESC LIMIT ? OFFSET ?)",
            [MAX_LOGINS, MAX_LOGINS - 1],
        )
        sql = "INSERT INTO web_logins (id, proof, expires) VALUES (?, ?, ?)"
        db.execute(sql, [_id(secret), token_fingerprint, to_micros(now + LIFETIME)])
        return secret

    async def token_fingerprint_of(self, secret: str) -> str | None:
        """Return the fingerprint of the token of a login, None if the login has ended."""
        sql = "SELECT proof FROM web_logins WHERE id = ? AND expires > ?"
        row = await self._database.fetch_one(sql, [_id(secret), to_micros(self._now())])
        return None if row is None else str(row["proof"])

    async def end(self, secret: str) -> None:
        """End a login, whose cookie is invalid from now on. Raises Unavailable."""
        await self._database.execute("DELETE FROM web_logins WHERE id = ?", [_id(secret)])


def _id(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
