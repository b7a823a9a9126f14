"""The state of unasked speech that survives a restart: pending signals, last contacts, snoozes.

A signal tells what happened, where and by whom, but never contains what was said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from storage.chat_log.event import Place
from storage.db.database import Database, Row, from_micros, to_micros


@dataclass(frozen=True, slots=True)
class Signal:
    """An occurrence of a `kind` at a place that may be a reason to speak.

    It counts from `time` on. `person` is a folded nick, `event_id` the log's id of the line that it
    is about; `id` is 0 until it is stored.
    """

    kind: str
    place: Place
    time: datetime
    person: str = ""
    event_id: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class Snooze:
    """A kind of signal that is ignored at a place `until` a time; None mutes the place until that
    is lifted."""

    kind: str
    place: Place
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class AttentionState:
    """The state at a restart: when the model last ran unasked in each place, the snoozes, and the
    pending signals, oldest first."""

    contacted: Mapping[Place, datetime] = field(default_factory=dict)
    put_off: tuple[Snooze, ...] = ()
    signals: tuple[Signal, ...] = ()


class AttentionStore:
    """The state of unasked speech in a database file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> AttentionState:
        """Return the whole state."""
        contacts = await self._database.fetch_all("SELECT * FROM contacts")
        put_off = await self._database.fetch_all("SELECT * FROM put_off")
        signals = await self._database.fetch_all("SELECT * FROM signals ORDER BY id")
        return AttentionState(
            {_place(row): from_micros(row["time"]) for row in contacts},
            tuple(
                Snooze(
                    row["kind"],
                    _place(row),
                    None if row["until"] is None else from_micros(row["until"]),
                )
                for row in put_off
            ),
            tuple(
                Signal(
                    row["kind"],
                    _place(row),
                    from_micros(row["time"]),
                    row["person"],
                    row["anchor"],
                    row["id"],
                )
                for row in signals
            ),
        )

    async def add_signal(self, signal: Signal) -> Signal:
        """Store a signal and return it with its id. It is pending until `mark_done`."""
        values = [
            signal.kind,
            signal.place.network,
            signal.place.channel,
            signal.person,
            to_micros(signal.time),
            _UNUSED_VALUE,
            signal.event_id,
        ]
        async with self._database.transaction() as db:
            cursor = await db.execute(
                "INSERT INTO signals (kind, network, channel, person, time, value, anchor)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
                values,
            )
            row = await cursor.fetchone()
            assert row is not None
            return replace(signal, id=int(row[0]))

    async def mark_done(self, signals: Iterable[Signal]) -> None:
        """Delete signals that have been dealt with."""
        gone = [[signal.id] for signal in signals]
        if gone:
            async with self._database.transaction() as db:
                await db.executemany("DELETE FROM signals WHERE id = ?", gone)

    async def forget(
        self, network: str | None, names: Iterable[str], anchors: Iterable[int]
    ) -> None:
        """Delete signals about people of these names, on one network or on all, and signals about
        the events `anchors`."""
        async with self._database.transaction() as db:
            await db.execute(
                "DELETE FROM signals WHERE (CAST(?1 AS TEXT) IS NULL OR network = ?1) AND person"
                " IN (SELECT CAST(value AS CITEXT) FROM json_each(?2))"
                " OR anchor IN (SELECT CAST(value AS BIGINT) FROM json_each(?3))",
                [network, json.dumps(list(names)), json.dumps(list(anchors))],
            )

    async def put_off(self, what: Snooze) -> None:
        """Store a snooze, replacing the one of that kind and place."""
        until = to_micros(what.until) if what.until else None
        async with self._database.transaction() as db:
            await db.execute(
                "INSERT INTO put_off (kind, network, channel, value, until)"
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, network, channel) DO UPDATE SET"
                " value = excluded.value, until = excluded.until",
                [what.kind, what.place.network, what.place.channel, _UNUSED_VALUE, until],
            )

    async def lift(self, place: Place) -> None:
        """Delete the snoozes of a place that have no end."""
        async with self._database.transaction() as db:
            await db.execute(
                "DELETE FROM put_off WHERE network = ? AND channel = ? AND until IS NULL",
                [place.network, place.channel],
            )

    async def record_contact(self, place: Place, time: datetime) -> None:
        """Record that the model ran unasked in a place."""
        async with self._database.transaction() as db:
            await db.execute(
                "INSERT INTO contacts VALUES (?, ?, ?)"
                " ON CONFLICT (network, channel) DO UPDATE SET time = excluded.time",
                [place.network, place.channel, to_micros(time)],
            )

    async def expire(self, now: datetime) -> None:
        """Delete signals and contacts of more than a day ago, and snoozes that have ended."""
        day = to_micros(now) - _DAY
        async with self._database.transaction() as db:
            await db.execute("DELETE FROM signals WHERE time < ?", [day])
            await db.execute("DELETE FROM put_off WHERE until < ?", [to_micros(now)])
            await db.execute("DELETE FROM contacts WHERE time < ?", [day])


_UNUSED_VALUE = 0.0  # for columns that are no longer used
_DAY = 24 * 3_600_000_000  # microseconds


def _place(row: Row) -> Place:
    return Place(row["network"], row["channel"])
