"""Reminders: texts that are due at a time, in the place where a person asked for them; and messages
to people that wait until these speak the next time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import ClassVar

from storage.chat_log.event import Place
from storage.connection import GIVEN, Row
from storage.db.database import Repository, from_micros, to_micros

MAX_REMINDERS, MOST_THERE = 20, 100
"""The most reminders of one person, and of all people in one place."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a reminder: a services account, else a nick with user name and host."""

    network: str
    nick: str
    user: str = ""
    host: str = ""
    account: str | None = None

    def is_same(self, other: Owner) -> bool:
        """Return whether both are one person: a nick without a host is nobody."""
        if self.account or other.account:
            one, two = ((each.network, (each.account or "").lower()) for each in (self, other))
            return one == two
        return bool(self.host) and self == other


@dataclass(frozen=True, slots=True)
class Reminder:
    """A text that is due at a time, once or repeatedly.

    `rule` is the cron expression of a recurring one, in the time zone `zone`. `question_event_id`
    is the log's id of the line that asked for it, 0 if that is not logged. With `asks` the text is
    a question to the model, asked in the owner's name. While it `is_paused` it is not said.
    """

    owner: Owner
    place: Place
    private: bool
    text: str
    due: datetime
    rule: str = ""
    zone: str = "UTC"
    question_event_id: int = 0
    asks: bool = False
    is_paused: bool = False
    id: int = 0


# Whoever has an account owns its reminders under any nick. Without one the whole mask has to agree:
# somebody who takes the nick over must not see or cancel them.
_OWN = (
    "network = :network AND (account = :account OR account IS NULL"
    ' AND nick = :nick AND "user" = :user AND host = :host)'
)


class PersonalRows(Repository):
    """The rows of a `table` that belong to people, and are erased with them: `of_owner` is the
    condition by which those of an `Owner` are found."""

    table: ClassVar[str]
    of_owner: ClassVar[str]

    async def forget(self, owner: Owner) -> int:
        """Delete all rows of a person; return how many."""
        sql = f"DELETE FROM {self.table} WHERE {self.of_owner}"
        return await self._database.execute(sql, asdict(owner))

    async def forget_asked(self, question_event_ids: Iterable[int]) -> None:
        """Delete the rows that these lines of the log asked for, whoever owns them."""
        sql = f"DELETE FROM {self.table} WHERE anchor IN {GIVEN}"
        await self._database.execute(sql, [json.dumps(list(question_event_ids))])

    async def forget_named(self, network: str | None, nick: str | None, account: str | None) -> int:
        """Delete the rows of a nick, an account or both, on one network or all; return how many."""
        return await self._database.execute(
            f"DELETE FROM {self.table} WHERE (CAST(?1 AS TEXT) IS NULL OR network = ?1)"
            " AND (CAST(?2 AS TEXT) IS NULL OR nick = CAST(?2 AS CITEXT))"
            " AND (CAST(?3 AS TEXT) IS NULL OR account = CAST(?3 AS CITEXT))",
            [network, nick, account],
        )


class Reminders(PersonalRows):
    """The reminders in a database file."""

    table, of_owner = "reminders", _OWN

    async def add(self, reminder: Reminder) -> Reminder | None:
        """Store a reminder and return it with its id, or return None if there are too many."""
        # One statement checks the limits and inserts: two requests at once cannot exceed them.
        sql = (
            'INSERT INTO reminders (network, channel, private, nick, "user", host, account,'
            " text, due, rule, zone, anchor, asks) SELECT :network, :channel, :private, :nick,"
            " :user, :host, :account, :text, :due, :rule, :zone, :question_event_id, :asks"
            f" WHERE (SELECT count(*) FROM reminders WHERE {_OWN}) < {MAX_REMINDERS}"
            " AND (SELECT count(*) FROM reminders WHERE network = :network"
            f" AND channel = :channel) < {MOST_THERE} RETURNING id"
        )
        values = asdict(reminder) | asdict(reminder.owner) | asdict(reminder.place)
        values["due"] = to_micros(reminder.due)
        added = await self._database.write(lambda db: db.execute(sql, values).fetchone())
        return replace(reminder, id=int(added[0])) if added else None

    async def get(self, number: int) -> Reminder | None:
        """Return the reminder with an id, if there is one."""
        row = await self._database.fetch_one("SELECT * FROM reminders WHERE id = ?", [number])
        return _reminder(row) if row else None

    async def all(self) -> Sequence[Reminder]:
        """Return the reminders of all people, the next one first."""
        rows = await self._database.fetch_all("SELECT * FROM reminders ORDER BY due, id")
        return [_reminder(row) for row in rows]

    async def for_owner(self, owner: Owner) -> Sequence[Reminder]:
        """Return an owner's reminders, the next one first."""
        sql = f"SELECT * FROM reminders WHERE {_OWN} ORDER BY due, id"
        rows = await self._database.fetch_all(sql, asdict(owner))
        return [_reminder(row) for row in rows]

    async def move(self, reminder: Reminder, due: datetime) -> Reminder:
        """Set another due time, as for the next occurrence of a recurring reminder."""
        sql = "UPDATE reminders SET due = ? WHERE id = ?"
        await self._database.execute(sql, [to_micros(due), reminder.id])
        return replace(reminder, due=due)

    async def pause(self, number: int, is_paused: bool) -> None:
        """Pause a reminder, or resume it."""
        sql = "UPDATE reminders SET paused = ? WHERE id = ?"
        await self._database.execute(sql, [int(is_paused), number])

    async def remove(self, number: int, owner: Owner | None = None) -> bool:
        """Delete a reminder, with an `owner` only one of theirs; return False if there is none."""
        mine = f"AND {_OWN}" if owner else ""
        values = {"id": number} | (asdict(owner) if owner else {})
        sql = f"DELETE FROM reminders WHERE id = :id {mine}"
        return await self._database.execute(sql, values) > 0


def _reminder(row: Row) -> Reminder:
    return Reminder(
        Owner(row["network"], row["nick"], row["user"], row["host"], row["account"]),
        Place(row["network"], row["channel"]),
        *(bool(row["private"]), row["text"], from_micros(row["due"]), row["rule"], row["zone"]),
        *(row["anchor"], bool(row["asks"]), bool(row["paused"]), row["id"]),
    )


MOST_FROM_ONE, MOST_FOR_ONE = 3, 10
"""The most messages that wait for one person from the same sender, and from all."""


@dataclass(frozen=True, slots=True)
class Tell:
    """A message of `sender` to a `recipient`, asked for in `place` by a question in the log."""

    recipient: Owner
    sender: str
    place: Place
    private: bool
    text: str
    time: datetime
    question_event_id: int
    id: int = 0


# Of somebody with an account the nick does not matter.
_TO = (
    "network = :network AND (account = :account OR account IS NULL AND nick = :nick"
    " AND (:host = '' OR \"user\" = :user AND host = :host))"
)


class Tells(PersonalRows):
    """The messages in a database file."""

    table, of_owner = "tells", _TO

    async def add(self, tell: Tell) -> bool:
        """Store a message; return False if too many wait for its recipient."""
        # One statement checks the limits and inserts: two requests at once cannot exceed them.
        sql = (
            'INSERT INTO tells (network, channel, private, nick, "user", host, account, sender,'
            " text, time, anchor) SELECT :network, :channel, :private, :nick, :user, :host,"
            " :account, :sender, :text, :time, :question_event_id"
            f" WHERE (SELECT count(*) FROM tells WHERE {_TO}) < {MOST_FOR_ONE}"
            f" AND (SELECT count(*) FROM tells WHERE {_TO} AND sender = :sender) < {MOST_FROM_ONE}"
        )
        values = asdict(tell) | asdict(tell.recipient) | asdict(tell.place)
        values["time"] = to_micros(tell.time)
        return await self._database.execute(sql, values) > 0

    async def awaited(self) -> set[tuple[str, str]]:
        """Return the networks and folded names (a nick, or "~ACCOUNT") of all recipients."""
        rows = await self._database.fetch_all("SELECT DISTINCT network, nick, account FROM tells")
        return {
            (
                row["network"],
                f"~{row['account']}".lower() if row["account"] else row["nick"].lower(),
            )
            for row in rows
        }

    async def for_person(self, network: str, nick: str, account: str | None) -> Sequence[Tell]:
        """Return what may be for a person of this nick and account, oldest first."""
        sql = (
            "SELECT * FROM tells WHERE network = ?"
            " AND (account = ? OR account IS NULL AND nick = ?) ORDER BY id"
        )
        return [
            Tell(
                Owner(row["network"], row["nick"], row["user"], row["host"], row["account"]),
                row["sender"],
                Place(row["network"], row["channel"]),
                *(bool(row["private"]), row["text"], from_micros(row["time"])),
                *(row["anchor"], row["id"]),
            )
            for row in await self._database.fetch_all(sql, [network, account, nick])
        ]

    async def remove(self, number: int) -> bool:
        """Delete a message; return False if there is none."""
        return await self._database.execute("DELETE FROM tells WHERE id = ?", [number]) > 0
