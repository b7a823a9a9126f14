"""Which channels we are in, and who is in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from harnesses.irc.protocol.isupport import ISupport
from harnesses.irc.protocol.message import Source


@dataclass(slots=True)
class Member:
    """Someone in a channel; `modes` are the letters of PREFIX that they have there."""

    nick: str
    user: str | None = None
    host: str | None = None
    account: str | None = None
    bot: bool = False
    modes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class JoinedChannel:
    """A channel that we are in; `names` collects a NAMES reply until its end.

    `joined` is when we came, by the server's clock; None where that is not told, and from the first
    line on that was said since.
    """

    name: str
    joined: datetime | None = None
    topic: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    names: dict[str, Member] = field(default_factory=dict)


class Roster:
    """Channels and members under the server's own idea of which names are the same.

    `isupport` may be set anew at any time before the first channel is joined.
    """

    def __init__(self) -> None:
        self.isupport = ISupport()
        self._channels: dict[str, JoinedChannel] = {}

    @property
    def channels(self) -> list[str]:
        """The names of the channels we are in, in the order of joining."""
        return [channel.name for channel in self._channels.values()]

    def channel(self, name: str) -> JoinedChannel | None:
        """The channel `name`, in any spelling, if we are in it."""
        return self._channels.get(self._fold(name))

    def shared_channels(self, nick: str) -> list[JoinedChannel]:
        """The channels that we share with `nick`."""
        return [c for c in self._channels.values() if self._fold(nick) in c.members]

    def member(self, nick: str) -> Member | None:
        """`nick` as known from any channel."""
        return next((c.members[self._fold(nick)] for c in self.shared_channels(nick)), None)

    def enter(self, name: str, joined: datetime | None = None) -> None:
        """We have joined `name`."""
        self._channels[self._fold(name)] = JoinedChannel(name, joined)

    def leave(self, name: str) -> None:
        """We are no longer in `name`."""
        self._channels.pop(self._fold(name), None)

    def clear(self) -> None:
        """We are nowhere."""
        self._channels.clear()

    def add(self, name: str, member: Member) -> None:
        """`member` has joined `name`."""
        if channel := self.channel(name):
            channel.members[self._fold(member.nick)] = member

    def remove(self, name: str, nick: str) -> None:
        """`nick` has left `name`."""
        if channel := self.channel(name):
            channel.members.pop(self._fold(nick), None)

    def rename(self, old: str, new: str) -> None:
        """`old` is called `new` now."""
        for channel in self.shared_channels(old):
            member = channel.members.pop(self._fold(old))
            member.nick = new
            channel.members[self._fold(new)] = member

    def change_mode(self, name: str, nick: str, mode: str, *, on: bool) -> None:
        """`nick` has got the member mode `mode` in `name`, or lost it."""
        channel = self.channel(name)
        if channel and (member := channel.members.get(self._fold(nick))):
            member.modes = member.modes | {mode} if on else member.modes - {mode}

    def is_operator(self, name: str, nick: str) -> bool:
        """Whether `nick` is an operator of `name`, or more than that."""
        channel = self.channel(name)
        member = channel.members.get(self._fold(nick)) if channel else None
        return bool(member and member.modes & self.isupport.operator_modes)

    def add_names(self, name: str, names: str) -> None:
        """One 353 line: nicks, with all their symbols, or whole `nick!user@host`."""
        if channel := self.channel(name):
            for word in names.split():
                source = Source.parse(self.isupport.without_prefix(word))
                known = channel.members.get(self._fold(source.nick)) or Member(source.nick)
                known.user, known.host = source.user or known.user, source.host or known.host
                known.modes = self.isupport.modes_of(word)
                channel.names[self._fold(source.nick)] = known

    def end_names(self, name: str) -> None:
        """The 366 after them: they are everybody who is there."""
        if (channel := self.channel(name)) and channel.names:
            channel.members, channel.names = channel.names, {}

    def _fold(self, name: str) -> str:
        return self.isupport.fold(name)
