"""The keys of tendrils: who may use the agent server, and how much of it.

A key is 256 random bits, so nobody can guess one from its hash: a plain SHA-256 is enough, and it
is quick enough to be done for every request. Slow hashes are for passwords, which can be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

from storage.connection import NOTIFY, AsyncConnection, Dialect
from storage.db.database import Database, Row, from_micros, to_micros
from storage.db.errors import StorageError

Priority = Literal["interactive", "background"]
PREFIX = "trm_"


class KeyExists(StorageError):
    """A key of this name is in use already."""


@dataclass(frozen=True, slots=True)
class Key:
    """An API key and its limits; None is no limit.

    `weight` is its share of the engine against other keys, `priority` the highest it can ask for,
    `parallel` how many of its requests run at once. One that `is_own` is a tendril of whoever runs
    the server, so that its prompts need not be kept from others of that kind; it is not issued.
    """

    name: str
    weight: float = 1.0
    priority: Priority = "interactive"
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    parallel: int | None = None
    is_own: bool = False

    @property
    def has_quotas(self) -> bool:
        """True if its use must be counted before a request is admitted."""
        return bool(self.requests_per_minute or self.tokens_per_minute or self.tokens_per_day)


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    """A key as listed: what it may do, its first characters, when it came and went."""

    key: Key
    hint: str
    created: datetime
    revoked: datetime | None


def digest(secret: str | bytes) -> bytes:
    """Return the SHA-256 of a bearer key: all that is stored of it."""
    return hashlib.sha256(secret.encode() if isinstance(secret, str) else secret).digest()


class Keys:
    """The keys in a database file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, key: Key) -> str:
        """Issue a new key and return its secret, which cannot be had again. Raises KeyExists."""
        secret = _new_secret()
        async with self._database.transaction() as db:
            cursor = await db.execute(
                f"{_INSERT} ON CONFLICT DO NOTHING", _values(key, secret, is_launch=False)
            )
            if cursor.rowcount == 0:
                raise KeyExists(f"there is a key {key.name} already; revoke it first")
            await _announce(db)
        return secret

    async def replace_launch_keys(self, keys: Sequence[Key]) -> Mapping[str, str]:
        """Put new launch keys in the place of all earlier ones; return their secrets by name."""
        made = {key.name: _new_secret() for key in keys}
        async with self._database.transaction() as db:
            await db.execute("DELETE FROM keys WHERE launch = 1")
            for key in keys:
                await db.execute(_INSERT, _values(key, made[key.name], is_launch=True))
            await _announce(db)
        return made

    async def revoke(self, name: str) -> bool:
        """End the issued key called `name`; whether there was one."""
        async with self._database.transaction() as db:
            cursor = await db.execute(
                "UPDATE keys SET revoked = ? WHERE name = ? AND revoked IS NULL AND launch = 0",
                [to_micros(datetime.now(UTC)), name],
            )
            await _announce(db)
            return cursor.rowcount > 0

    async def active(self) -> Mapping[bytes, Key]:
        """Return the keys that count, launch keys included, by digest."""
        rows = await self._database.fetch_all("SELECT * FROM keys WHERE revoked IS NULL")
        return {row["digest"]: _key(row) for row in rows}

    async def list_all(self) -> Sequence[ApiKeyRow]:
        """Return every key that was ever issued, the oldest first."""
        rows = await self._database.fetch_all("SELECT * FROM keys WHERE launch = 0 ORDER BY id")
        return [
            ApiKeyRow(
                _key(row),
                row["hint"],
                from_micros(row["created"]),
                None if row["revoked"] is None else from_micros(row["revoked"]),
            )
            for row in rows
        ]

    async def exist(self) -> bool:
        """Return True if a key was ever issued, revoked ones included."""
        row = await self._database.fetch_one("SELECT 1 FROM keys WHERE launch = 0 LIMIT 1")
        return row is not None


_LIMITS = tuple(field.name for field in fields(Key) if field.name != "is_own")
_COLUMNS = (*_LIMITS, "digest", "hint", "created", "launch")
_MARKS = ", ".join(f":{each}" for each in _COLUMNS)
_INSERT = f"INSERT INTO keys ({', '.join(_COLUMNS)}) VALUES ({_MARKS})"


def _new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def _values(key: Key, secret: str, *, is_launch: bool) -> Mapping[str, Any]:
    return {
        **{name: getattr(key, name) for name in _LIMITS},
        "digest": digest(secret),
        "hint": secret[: len(PREFIX) + 4],
        "created": to_micros(datetime.now(UTC)),
        "launch": is_launch,
    }


async def _announce(db: AsyncConnection) -> None:
    """Tell the agent servers that keys have changed; that of a file looks by itself."""
    if db.dialect is Dialect.POSTGRES:
        await db.execute(NOTIFY)


def _key(row: Row) -> Key:
    return Key(**{name: row[name] for name in _LIMITS}, is_own=bool(row["launch"]))
