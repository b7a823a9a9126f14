"""Messages to people that wait until these speak the next time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from storage.chat_log.event import Place
from storage.connection import GIVEN, Row
from storage.db.database import Repository, from_micros, to_micros
from storage.queues.reminders import Owner

MOST_FROM_ONE, MOST_FOR_ONE = 3, 10
"""The most messages that wait for one person from the same sender, and from all."""


@dataclass(frozen=True, slots=True)
class Tell:
    """A message of `sender` to a `recipient`, as they were seen last, asked for in `place` by the
    event `question_event_id`."""

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


class Tells(Repository):
    """The messages in a database file."""

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
        """Return the networks of all recipients, with the account as "~ACCOUNT" or the nick, in
        lower case."""
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
        return [_tell(row) for row in await self._database.fetch_all(sql, [network, account, nick])]

    async def remove(self, number: int) -> bool:
        """Delete a message; return False if there is none."""
        return await self._database.execute("DELETE FROM tells WHERE id = ?", [number]) > 0

    async def forget(self, recipient: Owner) -> int:
        """Delete what waits for a person; return how much."""
        return await self._database.execute(f"DELETE FROM tells WHERE {_TO}", asdict(recipient))

    async def forget_asked(self, question_event_ids: Iterable[int]) -> None:
        """Delete what these lines of the log asked for."""
        sql = f"DELETE FROM tells WHERE anchor IN {GIVEN}"
        await self._database.execute(sql, [json.dumps(list(question_event_ids))])

    async def forget_named(self, network: str | None, nick: str | None, account: str | None) -> int:
        """Delete what waits for a nick, an account or both, on one network or on all; return how
        many."""
        return await self._database.execute(
            "DELETE FROM tells WHERE (CAST(?1 AS TEXT) IS NULL OR network = ?1)"
            " AND (CAST(?2 AS TEXT) IS NULL OR nick = CAST(?2 AS CITEXT))"
            " AND (CAST(?3 AS TEXT) IS NULL OR account = CAST(?3 AS CITEXT))",
            [network, nick, account],
        )


def _tell(row: Row) -> Tell:
    return Tell(
        Owner(row["network"], row["nick"], row["user"], row["host"], row["account"]),
        row["sender"],
        Place(row["network"], row["channel"]),
        *(bool(row["private"]), row["text"], from_micros(row["time"]), row["anchor"], row["id"]),
    )
