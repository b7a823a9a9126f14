"""Opt-outs: people who are not logged, and the mark of lines that are not kept."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from storage.chat_log.event import SPOKEN, Event
from storage.db.database import Database

MARK = "[nolog]"
"""A line that has this in it, in any case, is not kept."""

# RFC 1459, section 2.2: on many networks these are one letter in two cases. Where they are not,
# one person more is left in peace.
_CASES = str.maketrans("[]\\~", "{}|^")

Name = tuple[str, str]
"""A network and a folded nick or account of it."""


def name_of(network: str, name: str) -> Name:
    """Return a nick or an account as it is compared."""
    return network, name.lower().translate(_CASES)


@dataclass(frozen=True, slots=True)
class OptOutRules:
    """Rules of what the log may keep: `nicks` and `accounts` of people who have opted out."""

    nicks: frozenset[Name] = frozenset()
    accounts: frozenset[Name] = frozenset()

    def keeps(self, event: Event) -> bool:
        """Return True if the log may have an event; one of our own only for its mark."""
        marked = event.type in SPOKEN and MARK in event.text.lower()
        return not marked and (event.own or not self.hides(event))

    def hides(self, event: Event) -> bool:
        """Return True if an event is by, or about, a person who has opted out."""
        if not self.nicks and not self.accounts:
            return False
        names = (event.nick, event.target) if event.target else (event.nick,)
        return any(self.hides_person(event.network, name, event.account) for name in names)

    def hides_person(self, network: str, nick: str, account: str | None) -> bool:
        """Return True if a person has opted out."""
        if account and name_of(network, account) in self.accounts:
            return True
        return name_of(network, nick) in self.nicks


def rules(connection: sqlite3.Connection) -> OptOutRules:
    """Return the rules as of now."""
    rows = connection.execute("SELECT network, nick, account FROM unlogged").fetchall()
    return OptOutRules(
        frozenset((network, nick) for network, nick, _ in rows),
        frozenset((network, account) for network, _, account in rows if account),
    )


class OptOuts:
    """The people who have opted out, in a database file. `opt_out_rules` are as of the last
    `load`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.opt_out_rules = OptOutRules()

    async def load(self) -> OptOutRules:
        """Read the rules."""
        self.opt_out_rules = await self._database.read(rules)
        return self.opt_out_rules

    async def add(self, network: str, nick: str, account: str | None) -> None:
        """Log nothing more of a person. A nick that an account has opted out stays that one's."""
        owner = name_of(network, account)[1] if account else None
        async with self._database.transaction() as db:
            await db.execute(
                "INSERT INTO unlogged VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
                " SET account = excluded.account WHERE account IS NULL",
                [*name_of(network, nick), owner],
            )
        await self.load()

    async def remove(self, network: str, nick: str, account: str | None) -> bool:
        """Log a person again, unless it was another account that opted the nick out; whether
        they are logged now."""
        owner = name_of(network, account)[1] if account else None
        async with self._database.transaction() as db:
            await db.execute(
                "DELETE FROM unlogged WHERE network = ?1 AND"
                " (account = ?3 OR nick = ?2 AND account IS NULL)",
                [*name_of(network, nick), owner],
            )
        return name_of(network, nick) not in (await self.load()).nicks
