"""What is known of one connection, shared by those who handle its messages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from harnesses.irc.capabilities import Capabilities
from harnesses.irc.event import EventType, IrcEvent
from harnesses.irc.isupport import ISupport
from harnesses.irc.mechanism import mechanisms
from harnesses.irc.message import Message, Source
from harnesses.irc.registration import NickChoice, Outgoing
from harnesses.irc.roster import Roster
from harnesses.irc.sasl import Sasl
from harnesses.irc.settings import NetworkSettings

Handler = Callable[["State", Message], list[IrcEvent]]
"""Takes one message of the server, changes the state, returns what is to be logged."""


def utc_now() -> datetime:
    """The time, aware."""
    return datetime.now(UTC)


class State:
    """The mutable heart of a session. `wanted` maps the channels to be in to their keys or "".

    `encrypted` says whether the connection is; `introduced` whether PASS, NICK and USER are out.
    """

    def __init__(
        self,
        network: str,
        settings: NetworkSettings,
        wanted: Mapping[str, str],
        now: Callable[[], datetime],
        encrypted: bool,
    ) -> None:
        self.network, self.settings, self.wanted, self.now = network, settings, wanted, now
        self.source = Source(settings.nick)
        self.encrypted, self.introduced = encrypted, False
        self.registered = False
        self.ready = False
        self.error: str | None = None
        self.roster = Roster()
        self.sasl = Sasl(mechanisms(settings, encrypted), network)
        self.capabilities = Capabilities(self.sasl, encrypted)
        self.nicks = NickChoice(settings.nick)
        self.batches: dict[str, str] = {}
        self.ctcp_answered: datetime | None = None
        self.outgoing: list[Outgoing] = []

    @property
    def isupport(self) -> ISupport:
        """What the server has said about itself."""
        return self.roster.isupport

    def is_me(self, nick: str) -> bool:
        """Whether `nick` is ours, under the server's case mapping."""
        return self.isupport.fold(nick) == self.isupport.fold(self.source.nick)

    def send(self, command: str, *params: str, urgent: bool = False) -> None:
        """Send a message; urgent ones overtake."""
        self.outgoing.append(Outgoing(Message(command, params), urgent=urgent))

    def send_later(
        self, delay: float, unless: Callable[[], bool], command: str, *params: str
    ) -> None:
        """Send a message in `delay` seconds, unless it is needless then."""
        self.outgoing.append(Outgoing(Message(command, params), delay, unless=unless))

    def join(self, channel: str, delay: float = 0.0) -> None:
        """Join `channel`, `delay` seconds from now, if we want to be in it and are not, then."""
        fold = self.isupport.fold
        for name, key in self.wanted.items():
            if fold(name) == fold(channel):
                params = (name, key) if key else (name,)
                needless = functools.partial(self._needless, name)
                self.send_later(delay, needless, "JOIN", *params)

    def _needless(self, channel: str) -> bool:
        return channel not in self.wanted or self.roster.channel(channel) is not None

    def batch_type(self, message: Message) -> str | None:
        """The type of the batch that `message` is part of."""
        return self.batches.get(message.tags.get("batch", ""))

    def event(
        self, kind: EventType, message: Message, channel: str | None, target: str, text: str = ""
    ) -> IrcEvent:
        """The event that `message` stands for; its channel is spelled as when we joined."""
        source = message.source or Source("")
        known = self.roster.channel(channel) if channel else None
        return IrcEvent(
            network=self.network,
            type=kind,
            channel=known.name if known else channel,
            target=target,
            nick=source.nick,
            user=source.user,
            host=source.host,
            account=self._account(message, source.nick),
            text=text,
            time=_time(message.tags.get("time", "")) or self.now(),
            msgid=message.tags.get("msgid") or None,
            own=self.is_me(source.nick),
            batch_type=self.batch_type(message),
        )

    def _account(self, message: Message, nick: str) -> str | None:
        if "account-tag" in self.capabilities.enabled:
            return message.tags.get("account") or None
        member = self.roster.member(nick)
        return member.account if member else None


def _time(tag: str) -> datetime | None:
    """A server-time tag (https://ircv3.net/specs/extensions/server-time), always UTC."""
    try:
        found = datetime.fromisoformat(tag)
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
