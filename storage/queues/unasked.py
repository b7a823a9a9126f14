"""The records of attention: when a tendril may speak unasked again, and signals that it felt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from storage.chat_log.event import PendingEvent, Place
from storage.db.database import Connection, Repository, from_micros, to_micros

SignalKind = Literal["question", "mention", "reaction", "silence", "job", "error", "thought"]
LIFETIME = timedelta(days=30)
"""The time after which a signal, and what was or would have been said, is deleted."""

WOKE = "woke the model"
"""The outcome of a signal that did so, with what came of it behind a colon."""

_INSERT = """
INSERT INTO signals
    (time, kind, network, channel, event_id, about, outcome, ended, energy, paste)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE CAST(? AS BIGINT) IS NULL
    OR EXISTS (SELECT 1 FROM events WHERE id = ?) RETURNING id"""


@dataclass(frozen=True, slots=True)
class Silence:
    """The silence of a place: since the model was `asked` there last, and for good if `muted`."""

    asked: datetime
    muted: bool


class Silences(Repository):
    """The silences in a database file."""

    async def all(self) -> dict[Place, Silence]:
        """Return the silences of all places."""
        return {
            Place(row["network"], row["channel"]): Silence(
                from_micros(row["asked"]), bool(row["muted"])
            )
            for row in await self._database.fetch_all("SELECT * FROM unasked")
        }

    async def put(self, place: Place, silence: Silence) -> None:
        """Store the silence of a place."""
        await self._database.execute(
            "INSERT INTO unasked (network, channel, asked, muted) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (network, channel) DO UPDATE"
            " SET asked = excluded.asked, muted = excluded.muted",
            [place.network, place.channel, to_micros(silence.asked), int(silence.muted)],
        )


@dataclass(slots=True, eq=False)
class Signal:
    """A reason to speak in a place, and what became of it.

    It is about a line, by `nick` (folded), or `about` what our own words say. `outcome` is "" until
    the tendril of the place has felt it. `ended` is the time at which it woke the model or was let
    pass, with the `energy` (0 to 1) of that time; `paste` has what was, or would have been, said.
    `is_good` tells whether it was a moment to speak, None if nobody has judged. `line` and `nick`
    are not stored, and an `id` of 0 is that of a signal that is not stored yet.
    """

    time: datetime
    kind: SignalKind
    place: Place
    about: str = ""
    nick: str = ""
    line: PendingEvent | None = None
    event_id: int | None = None
    outcome: str = ""
    ended: datetime | None = None
    energy: float = 1.0
    paste: str = ""
    is_good: bool | None = None
    id: int = 0

    @property
    def has_woken(self) -> bool:
        """True if the model was woken by it."""
        return self.outcome.startswith(WOKE)


class Signals(Repository):
    """The signals in the database of the log. All methods raise StorageError."""

    async def put(self, signal: Signal) -> None:
        """Store a signal or what became of it, unless its line is not in the log any more."""
        place, line = signal.place, signal.event_id
        ended = None if signal.ended is None else to_micros(signal.ended)
        state = [signal.outcome, ended, signal.energy, signal.paste]
        new = [to_micros(signal.time), signal.kind, place.network, place.channel, line]

        def insert(db: Connection) -> int:
            oldest = to_micros(signal.time - LIFETIME)
            db.execute("DELETE FROM signals WHERE time < ?", [oldest])
            row = db.execute(_INSERT, [*new, signal.about, *state, line, line]).fetchone()
            return row["id"] if row else 0

        if signal.id:
            sql = "UPDATE signals SET outcome = ?, ended = ?, energy = ?, paste = ? WHERE id = ?"
            await self._database.execute(sql, [*state, signal.id])
        else:
            signal.id = await self._database.write(insert, durable=False)

    async def unfelt(self, since: datetime) -> Sequence[Signal]:
        """Return the signals since a time that no tendril has felt yet."""
        return await self._find("outcome = '' AND time >= ?", to_micros(since))

    async def since(self, time: datetime) -> Sequence[Signal]:
        """Return the signals that were felt since a time, newest first."""
        return await self._find("outcome <> '' AND time >= ?", to_micros(time))

    async def judge(self, number: int, *, is_good: bool) -> None:
        """Store whether a signal was a moment to speak."""
        sql = "UPDATE signals SET is_good = ? WHERE id = ?"
        await self._database.execute(sql, [int(is_good), number])

    async def _find(self, where: str, *values: int) -> Sequence[Signal]:
        sql = f"SELECT * FROM signals WHERE {where} ORDER BY time DESC, id DESC"
        same = ("kind", "about", "event_id", "outcome", "energy", "paste", "id")
        return [
            Signal(
                time=from_micros(row["time"]),
                place=Place(row["network"], row["channel"]),
                ended=None if row["ended"] is None else from_micros(row["ended"]),
                is_good=None if row["is_good"] is None else bool(row["is_good"]),
                **{name: row[name] for name in same},
            )
            for row in await self._database.fetch_all(sql, values)
        ]
