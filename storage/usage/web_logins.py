"""The browsers that are logged in to the web tendril, until they log out.

A login is 256 random bits in a cookie, of which the file has the hash only: whoever reads a backup
cannot log in by it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256

from storage.db.database import Database, to_micros

LIFETIME = timedelta(days=365)
MOST = 1_000
"""Logins that are kept; the oldest end before there are more."""


class WebLogins:
    """The logins in a database file. `now` tells the time."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    async def add(self, proof: str) -> str:
        """Begin a login that was opened by the token of this `proof`; return its secret, for the
        cookie. Raises Unavailable."""
        secret, now = secrets.token_urlsafe(32), self._now()
        async with self._database.transaction() as db:
            await db.execute("DELETE FROM web_logins WHERE expires <= ?", [to_micros(now)])
            await db.execute(
                "DELETE FROM web_logins WHERE id IN"
                " (SELECT id FROM web_logins ORDER BY expires DESC LIMIT ? OFFSET ?)",
                [MOST, MOST - 1],
            )
            await db.execute(
                "INSERT INTO web_logins (id, proof, expires) VALUES (?, ?, ?)",
                [_id(secret), proof, to_micros(now + LIFETIME)],
            )
        return secret

    async def proof_of(self, secret: str) -> str | None:
        """Return the proof of the token that opened a login; None if it has ended. Raises
        Unavailable."""
        row = await self._database.fetch_one(
            "SELECT proof FROM web_logins WHERE id = ? AND expires > ?",
            [_id(secret), to_micros(self._now())],
        )
        return None if row is None else str(row["proof"])

    async def end(self, secret: str) -> None:
        """End a login: its cookie opens nothing any more. Raises Unavailable."""
        async with self._database.transaction() as db:
            await db.execute("DELETE FROM web_logins WHERE id = ?", [_id(secret)])


def _id(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
