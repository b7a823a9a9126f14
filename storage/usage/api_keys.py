"""API keys of the agent server, with their limits.

A key has 256 random bits, so it cannot be guessed from its hash: a plain SHA-256 is enough, and
fast enough for every request. Slow hashes are for passwords, which can be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

from storage.db.database import Connection, Repository, Row, from_micros, to_micros, writes
from storage.db.errors import StorageError

Priority = Literal["interactive", "background"]
PREFIX = "trm_"


class KeyExists(StorageError):
    """A key of this name exists and is not revoked."""


@dataclass(frozen=True, slots=True)
class Key:
    """An API key and its limits; None is no limit.

    `weight` is its share of the engine relative to other keys, `priority` the highest that it may
    request, `parallel` the number of its requests that run at the same time. It is invalid from
    `expires` on. A key that `is_own`, as launch keys are, belongs to the operator of the server and
    was not issued to anybody: the prompts of such keys need not be kept apart.
    """

    name: str
    weight: float = 1.0
    priority: Priority = "interactive"
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    parallel: int | None = None
    expires: datetime | None = None
    is_own: bool = False

    @property
    def has_quotas(self) -> bool:
        """True if a request must be checked against a quota before it is admitted."""
        return bool(self.requests_per_minute or self.tokens_per_minute or self.tokens_per_day)


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    """A key as listed. `hint` is the beginning of its secret."""

    key: Key
    hint: str
    created: datetime
    revoked: datetime | None


def digest(secret: str | bytes) -> bytes:
    """Return the SHA-256 of a key's secret, which is stored in its place."""
    return hashlib.sha256(secret.encode() if isinstance(secret, str) else secret).digest()


class Keys(Repository):
    """The keys in a database file."""

    async def create(self, key: Key) -> str:
        """Issue a new key and return its secret, which is not stored. Raises KeyExists."""
        secret = _new_secret()
        values = _values(key, secret, is_launch=False)
        if await self._database.execute(f"{_INSERT} ON CONFLICT DO NOTHING", values) == 0:
            raise KeyExists(f"{key.name} already has a key; change or revoke it")
        return secret

    async def change(self, key: Key) -> bool:
        """Give the issued key of a name the limits of `key`; return False if there is none."""
        changed = ", ".join(f"{each} = :{each}" for each in _LIMITS)
        sql = f"UPDATE keys SET {changed} WHERE name = :name AND revoked IS NULL AND launch = 0"
        return await self._database.execute(sql, _limits(key)) > 0

    @writes
    def replace_launch_keys(self, db: Connection, keys: Sequence[Key]) -> Mapping[str, str]:
        """Replace all launch keys by new ones, and return their secrets by name."""
        made = {key.name: _new_secret() for key in keys}
        db.execute("DELETE FROM keys WHERE launch = 1")
        db.executemany(_INSERT, [_values(key, made[key.name], is_launch=True) for key in keys])
        return made

    async def revoke(self, name: str) -> bool:
        """Revoke the issued key called `name`; return False if there is none."""
        sql = "UPDATE keys SET revoked = ? WHERE name = ? AND revoked IS NULL AND launch = 0"
        return await self._database.execute(sql, [to_micros(datetime.now(UTC)), name]) > 0

    async def active(self) -> Mapping[bytes, Key]:
        """Return the valid keys by digest, launch keys included."""
        rows = await self._database.fetch_all("SELECT * FROM keys WHERE revoked IS NULL")
        return {row["digest"]: _key(row) for row in rows}

    async def list_all(self) -> Sequence[ApiKeyRow]:
        """Return all keys ever issued, revoked ones included, the oldest first."""
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
        **_limits(key),
        "digest": digest(secret),
        "hint": secret[: len(PREFIX) + 4],
        "created": to_micros(datetime.now(UTC)),
        "launch": is_launch,
    }


def _limits(key: Key) -> Mapping[str, Any]:
    expires = None if key.expires is None else to_micros(key.expires)
    return {name: getattr(key, name) for name in _LIMITS} | {"expires": expires}


def _key(row: Row) -> Key:
    expires = None if row["expires"] is None else from_micros(row["expires"])
    limits = {name: row[name] for name in _LIMITS} | {"expires": expires}
    return Key(**limits, is_own=bool(row["launch"]))
