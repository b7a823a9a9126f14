"""Opt-outs: people who are not logged, and the mark of lines that are not kept.

An opt-out binds a services account or, of somebody who is not logged in, the whole
`nick!user@host`. So nobody can take it over, or take it back, by taking the nick.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from storage.chat_log.event import SPOKEN, Event, EventType, Identity
from storage.db.database import Connection, Database

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


def person_of(name: str) -> str:
    """Return a person's name as memory compares it."""
    return name_of("", name.strip())[1]


Mask = tuple[str, str, str, str]
"""A network with the nick, user name and host of somebody on it, as they are compared."""

_ANY = "*"  # the user name and the host of who asked before masks were kept


def mask_of(network: str, who: Identity) -> Mask:
    """Return the whole mask of a person."""
    return *name_of(network, who.nick), who.user.lower(), who.host.lower()


@dataclass(frozen=True, slots=True)
class OptOutRules:
    """Rules of what the log may keep: the `accounts` and `masks` of people who have opted out, and
    the `nicks` that they had then."""

    accounts: frozenset[Name] = frozenset()
    masks: frozenset[Mask] = frozenset()
    nicks: frozenset[Name] = frozenset()

    def keeps(self, event: Event) -> bool:
        """Return True if the log may have an event; one of our own only for its mark."""
        marked = event.type in SPOKEN and MARK in event.text.lower()
        return not marked and (event.own or not self.hides(event))

    def hides(self, event: Event) -> bool:
        """Return True if an event is by, or about, a person who has opted out."""
        if not self.nicks:
            return False
        who, network = Identity.from_event(event), event.network
        if self.hides_person(network, who):
            return True
        if event.type is EventType.NICK:
            return self.hides_person(network, replace(who, nick=event.target))
        return bool(event.target) and name_of(network, event.target) in self.nicks

    def hides_person(self, network: str, who: Identity) -> bool:
        """Return True if a person has opted out. Of whom nothing but the nick is known, as in
        imported logs, it is everybody who had the nick of one."""
        if not (who.user or who.host or who.account):
            return name_of(network, who.nick) in self.nicks
        if who.account and name_of(network, who.account) in self.accounts:
            return True
        if mask_of(network, who) in self.masks:
            return True
        return not who.account and (*name_of(network, who.nick), _ANY, _ANY) in self.masks


def rules(connection: Connection) -> OptOutRules:
    """Return the rules as of now."""
    rows = connection.execute(
        'SELECT network, account, nick, "user", host FROM unlogged'
    ).fetchall()
    return OptOutRules(
        accounts=frozenset((network, account) for network, account, *_ in rows if account),
        masks=frozenset((network, *mask) for network, account, *mask in rows if not account),
        nicks=frozenset((network, nick) for network, _, nick, *_ in rows),
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

    async def add(self, network: str, who: Identity) -> None:
        """Log nothing more of a person: of their account or, without one, of their mask."""
        row = (*mask_of(network, who), "")
        if who.account:
            row = (*name_of(network, who.nick), "", "", name_of(network, who.account)[1])
        async with self._database.transaction() as db:
            await db.execute(
                'INSERT INTO unlogged (network, nick, "user", host, account)'
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                row,
            )
        await self.load()

    async def remove(self, network: str, who: Identity) -> bool:
        """Take back what a person has asked for, under their account or mask, and nobody else's;
        return whether that has changed anything or there was nothing under their nick either."""
        account = name_of(network, who.account)[1] if who.account else None
        async with self._database.transaction() as db:
            cursor = await db.execute(
                "DELETE FROM unlogged WHERE network = ?1 AND (account = ?5 OR account = ''"
                ' AND nick = ?2 AND "user" = ?3 AND host = ?4)',
                [*mask_of(network, who), account],
            )
        left = (await self.load()).nicks
        return cursor.rowcount > 0 or name_of(network, who.nick) not in left
