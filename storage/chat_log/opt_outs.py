"""Opt-outs: people who are not logged, and the mark of lines that are not logged.

An opt-out is bound to a services account, or to the whole `nick!user@host` of somebody who is not
logged in to services. So nobody can take it over, or take it back, by taking the nick.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from storage.chat_log.event import SPOKEN, Event, EventType, Identity
from storage.db.database import Connection, Repository

MARK = "[nolog]"
"""A line that contains this, in upper or lower case, is not logged."""

# RFC 1459, section 2.2: on many networks "{}|" are the lower case of "[]\" ("~", that of "^", is in
# no nick). On others the rules then match one more nick, which errs on the side of privacy.
_CASES = str.maketrans("[]\\", "{}|")

Name = tuple[str, str]
"""A network, and a folded nick or account on it."""


def name_of(network: str, name: str) -> Name:
    """Return a nick or an account, folded for comparison, with its network."""
    return network, name.lower().translate(_CASES)


def person_of(name: str) -> str:
    """Return a person's name, a nick or `Identity.room`, stripped and folded as in memory."""
    nick, sign, rest = name.strip().partition("!")
    return f"{name_of('', nick)[1]}{sign}{rest.lower()}"


def nick_of(person: str) -> str:
    """Return what to call a person of whom memory has this name: the nick, or the account."""
    return person.removeprefix("~").partition("!")[0]


Mask = tuple[str, str, str, str]
"""A network, and the folded nick, user name and host of somebody on it."""

_ANY = "*"  # user name and host in opt-outs of earlier versions, which knew the nick only


def mask_of(network: str, who: Identity) -> Mask:
    """Return the mask of a person, folded for comparison."""
    return *name_of(network, who.nick), who.user.lower(), who.host.lower()


@dataclass(frozen=True, slots=True)
class OptOutRules:
    """The opt-outs in effect: `accounts` and `masks`, and the `nicks` that they had then."""

    accounts: frozenset[Name] = frozenset()
    masks: frozenset[Mask] = frozenset()
    nicks: frozenset[Name] = frozenset()

    def keeps(self, event: Event) -> bool:
        """Return True if an event may be logged. Only the mark keeps our own lines out."""
        marked = event.type in SPOKEN and MARK in event.text.lower()
        return not marked and (event.own or not self.hides(event))

    def hides(self, event: Event) -> bool:
        """Return True if an event is by, or about, a person who has opted out."""
        if not self.nicks:
            return False
        who, network = Identity.from_event(event), event.network
        if self.hides_person(network, who):
            return True
        # A nick change names a person twice; of a kick's target only the nick is known.
        if event.type is EventType.NICK:
            return self.hides_person(network, replace(who, nick=event.target))
        return bool(event.target) and name_of(network, event.target) in self.nicks

    def hides_person(self, network: str, who: Identity) -> bool:
        """Return True if a person has opted out or, where only a nick is known, as in imported
        logs, anybody who had that nick."""
        if not (who.user or who.host or who.account):
            return name_of(network, who.nick) in self.nicks
        if who.account and name_of(network, who.account) in self.accounts:
            return True
        if mask_of(network, who) in self.masks:
            return True
        # An opt-out of an earlier version holds for everybody with the nick who is not logged in.
        return not who.account and (*name_of(network, who.nick), _ANY, _ANY) in self.masks


def rules(connection: Connection) -> OptOutRules:
    """Return the current rules, from the database."""
    sql = 'SELECT network, account, nick, "user", host FROM unlogged'
    rows = connection.execute(sql).fetchall()
    return OptOutRules(
        accounts=frozenset((network, account) for network, account, *_ in rows if account),
        masks=frozenset((network, *mask) for network, account, *mask in rows if not account),
        nicks=frozenset((network, nick) for network, _, nick, *_ in rows),
    )


class OptOuts(Repository):
    """The opt-outs in a database; `opt_out_rules` are those last loaded or changed."""

    opt_out_rules = OptOutRules()

    async def load(self) -> OptOutRules:
        """Read the rules from the database, keep and return them."""
        self.opt_out_rules = await self._database.read(rules)
        return self.opt_out_rules

    async def add(self, network: str, who: Identity) -> None:
        """Add an opt-out for the account of a person or, without one, for their mask."""
        row = (*mask_of(network, who), "")
        if who.account:
            row = (*name_of(network, who.nick), "", "", name_of(network, who.account)[1])

        def insert(db: Connection) -> None:
            db.execute(
                'INSERT INTO unlogged (network, nick, "user", host, account)'
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                row,
            )
            # Nothing is derived any more from what they have said. Others with the nick get their
            # vectors again.
            for line in ("event_id", "before_id"):
                db.execute(
                    f"DELETE FROM vectors WHERE {line} IN (SELECT id FROM events"
                    " WHERE nick = ?1 OR (account = ?2 AND account <> ''))",
                    [who.nick, who.account],
                )

        await self._database.write(insert)
        await self.load()

    async def remove(self, network: str, who: Identity) -> bool:
        """Remove the opt-out of a person's account or mask. Return False if nothing was removed,
        and somebody else with their nick has opted out."""
        account = name_of(network, who.account)[1] if who.account else None
        count = await self._database.execute(
            "DELETE FROM unlogged WHERE network = ?1 AND (account = ?5 OR account = ''"
            ' AND nick = ?2 AND "user" = ?3 AND host = ?4)',
            [*mask_of(network, who), account],
        )
        left = (await self.load()).nicks
        return count > 0 or name_of(network, who.nick) not in left
