"""Pastes: long answers that are stored for a link and for `.more`.

An id has 144 random bits and is a capability: whoever knows it may read the paste, also one of a
private conversation. Nothing lists the ids.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from storage.chat_log.event import Place
from storage.db.database import Connection, Repository, from_micros, to_micros, writes

_JUST_NOW = timedelta(minutes=10)  # while somebody's own answer is the one they go on reading


@dataclass(frozen=True, slots=True)
class Paste:
    """A stored answer; `rest` are the lines of it that have not been said yet, `quotes` the ids of
    the log lines that it repeats, and of its question."""

    id: str
    text: str
    time: datetime
    expires: datetime
    rest: tuple[str, ...]
    quotes: frozenset[int]


class Pastes(Repository):
    """The pastes in a database file."""

    @writes
    def add(
        self,
        db: Connection,
        place: Place,
        nick: str,
        text: str,
        rest: tuple[str, ...],
        lifetime: timedelta,
        quotes: Collection[int] = (),
    ) -> str:
        """Store an answer to `nick` and return its id. Expired pastes are deleted."""
        token, now = secrets.token_urlsafe(18), datetime.now(UTC)
        values = [
            *(token, place.network, place.channel, nick, to_micros(now)),
            *(to_micros(now + lifetime), text, "\n".join(rest), json.dumps(list(quotes))),
        ]
        db.execute("DELETE FROM pastes WHERE expires <= ?", [to_micros(now)])
        db.execute("INSERT INTO pastes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        return token

    async def get(self, token: str) -> Paste | None:
        """Return the paste with this id, unless it has expired."""
        return await self._fetch("id = ?", token)

    async def latest(self, place: Place, nick: str) -> Paste | None:
        """Return the newest paste of a place that has lines left to say: one that `nick` has just
        been answered with, while several answer at once, else anybody's."""
        recent = to_micros(datetime.now(UTC) - _JUST_NOW)
        where = (
            "network = ? AND channel = ? AND rest <> ''"
            " ORDER BY (nick = ? AND time > ?) DESC, time DESC LIMIT 1"
        )
        return await self._fetch(where, place.network, place.channel, nick, recent)

    async def save_rest(self, token: str, rest: tuple[str, ...]) -> None:
        """Store the lines that are still left to say."""
        sql = "UPDATE pastes SET rest = ? WHERE id = ?"
        await self._database.execute(sql, ["\n".join(rest), token])

    async def _fetch(self, where: str, *values: str | int) -> Paste | None:
        sql = f"SELECT * FROM pastes WHERE expires > ? AND {where}"
        row = await self._database.fetch_one(sql, [to_micros(datetime.now(UTC)), *values])
        if row is None:
            return None
        return Paste(
            id=row["id"],
            text=row["text"],
            time=from_micros(row["time"]),
            expires=from_micros(row["expires"]),
            rest=tuple(row["rest"].split("\n")) if row["rest"] else (),
            quotes=frozenset(json.loads(row["quotes"])),
        )
