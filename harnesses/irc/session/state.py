"""State of one connection, shared by the handlers of its messages: channels, members, ourselves."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.isupport import ISupport
from harnesses.irc.protocol.message import Message, Source
from harnesses.irc.protocol.multiline import MultilineAssembler
from harnesses.irc.protocol.sent_lines import ReceiptTracker, SentLines
from harnesses.irc.session.capabilities import ECHO, CapabilityNegotiation
from harnesses.irc.session.ctcp import CtcpResponder
from harnesses.irc.session.registration import NickPicker, QueuedMessage
from harnesses.irc.session.sasl import Sasl, mechanisms
from harnesses.irc.settings import NetworkSettings

Handler = Callable[["ConnectionState", Message], list[IrcEvent]]
"""Takes one message of the server, changes the state, returns what is to be logged."""

PAST = frozenset({"chathistory", "playback", "znc.in/playback"})
"""Batches of things that happened before now."""

ATTACHED = "attached"
"""The word of the PING whose answer ends what a bouncer tells of its channels."""

BIP = "bip@b.i.p"
"""The user and host in whose name the bouncer bip plays back."""

SKEW = timedelta(seconds=1)
"""The most that the clocks of a network's servers may be apart."""

AHEAD, BEHIND = timedelta(minutes=5), timedelta(days=1)
"""The most that a server's clock may be from ours to be believed: the log is in order of time, so a
line of next year would stay its last one for a year."""

REMEMBERED = 1000
"""Messages whose ids are kept, to know one that comes again."""

REPLAYED = 200
"""Lines of the past that are kept, to find words of our own among them."""

JOINS_AT_ONCE = 10
"""Channels in one JOIN, for no line to become too long."""


BOT_TAGS = frozenset({"bot", "draft/bot", "inspircd.org/bot"})
"""Tags of what a bot says (https://ircv3.net/specs/extensions/bot-mode)."""


def utc_now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Member:
    """Someone in a channel; `modes` are the letters of PREFIX that they have there. Of a `service`
    the server has said that it is one, or an operator."""

    nick: str
    user: str | None = None
    host: str | None = None
    account: str | None = None
    bot: bool = False
    service: bool = False
    modes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Whois:
    """A question to the server who has a nick; `found` are told the answer, None for nobody."""

    member: Member | None = None
    found: list[Callable[[Member | None], None]] = field(default_factory=list)


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


@dataclass(frozen=True, slots=True)
class JoinRefusal:
    """A channel that does not let us in: since the attempt number `attempts`, at `time`; the next
    one is `retry_in` seconds later. `reason` is for people, `numeric` the server's."""

    channel: str
    numeric: str
    reason: str
    attempts: int
    time: datetime
    retry_in: float


class Roster:
    """Channels and members under the server's own idea of which names are the same.

    `isupport` may be replaced at any time before the first channel is joined.
    """

    def __init__(self) -> None:
        self.isupport = ISupport()
        self._visited: set[str] = set()
        self._channels: dict[str, JoinedChannel] = {}

    @property
    def channels(self) -> list[str]:
        """The names of the channels we are in, in the order of joining."""
        return [channel.name for channel in self._channels.values()]

    def channel(self, name: str) -> JoinedChannel | None:
        """Return the channel `name`, in any spelling, if we are in it."""
        return self._channels.get(self._fold(name))

    def shared_channels(self, nick: str) -> list[JoinedChannel]:
        """Return the channels that we share with `nick`."""
        return [c for c in self._channels.values() if self._fold(nick) in c.members]

    def member(self, nick: str) -> Member | None:
        """Return `nick` as known from any channel."""
        return next((c.members[self._fold(nick)] for c in self.shared_channels(nick)), None)

    def enter(self, name: str, joined: datetime | None = None) -> None:
        """Add `name` to the channels that we are in."""
        self._visited.add(self._fold(name))
        self._channels[self._fold(name)] = JoinedChannel(name, joined)

    def has_visited(self, name: str) -> bool:
        """Return whether we are in `name`, or have been in it on this connection."""
        return self._fold(name) in self._visited

    def leave(self, name: str) -> None:
        """Remove `name` from the channels that we are in."""
        self._channels.pop(self._fold(name), None)

    def clear(self) -> None:
        """Forget all channels, as the connection is gone."""
        self._channels.clear()

    def add(self, name: str, member: Member) -> None:
        """Add a member who has joined `name`."""
        if channel := self.channel(name):
            channel.members[self._fold(member.nick)] = member

    def remove(self, name: str, nick: str) -> None:
        """Remove a member who has left `name`."""
        if channel := self.channel(name):
            channel.members.pop(self._fold(nick), None)

    def rename(self, old: str, new: str) -> None:
        """Rename a member everywhere."""
        for channel in self.shared_channels(old):
            member = channel.members.pop(self._fold(old))
            member.nick = new
            channel.members[self._fold(new)] = member

    def change_mode(self, name: str, nick: str, mode: str, *, on: bool) -> None:
        """Give `nick` the member mode `mode` in `name`, or take it."""
        channel = self.channel(name)
        if channel and (member := channel.members.get(self._fold(nick))):
            member.modes = member.modes | {mode} if on else member.modes - {mode}

    def is_operator(self, name: str, nick: str) -> bool:
        """Return whether `nick` is an operator of `name`, or more than that."""
        channel = self.channel(name)
        member = channel.members.get(self._fold(nick)) if channel else None
        return bool(member and member.modes & self.isupport.operator_modes)

    def add_names(self, name: str, names: str) -> None:
        """Take one 353 line: nicks, with all their symbols, or whole `nick!user@host`."""
        if channel := self.channel(name):
            for word in names.split():
                source = Source.parse(self.isupport.without_prefix(word))
                known = channel.members.get(self._fold(source.nick)) or Member(source.nick)
                known.user, known.host = source.user or known.user, source.host or known.host
                known.modes = self.isupport.modes_of(word)
                channel.names[self._fold(source.nick)] = known

    def end_names(self, name: str) -> None:
        """Take the 366 after them: they are everybody who is there."""
        if (channel := self.channel(name)) and channel.names:
            channel.members, channel.names = channel.names, {}

    def _fold(self, name: str) -> str:
        return self.isupport.fold(name)


class ConnectionState:
    """The mutable heart of a session. `desired_channels` maps the channels to be in to their keys
    or "".

    `encrypted` says whether the connection is; `introduced` whether PASS, NICK and USER are out.
    `lost_nick` is the nick we want while we have another, `nick_losses` how often it was taken
    from us; `seen` has the last messages' ids with their targets, `replayed` the last lines of the
    past: folded target, words and time. `refusals` are the channels that
    do not let us in, `asked_channels` those that we have sent a JOIN for; both by folded name.
    `uninvited` are channels that we were sent to and are about to leave.
    While `is_attaching`, a bouncer tells us of the channels where it already is.
    """

    def __init__(
        self,
        network: str,
        settings: NetworkSettings,
        wanted: MutableMapping[str, str],
        now: Callable[[], datetime],
        encrypted: bool,
    ) -> None:
        self.network, self.settings, self.desired_channels, self.now = (
            network,
            settings,
            wanted,
            now,
        )
        self.source = Source(settings.nick)
        self.encrypted, self.introduced = encrypted, False
        self.registered = False
        self.ready = False
        self.error: str | None = None
        self.roster = Roster()
        self.sasl = Sasl(mechanisms(settings, encrypted), network)
        self.capabilities = CapabilityNegotiation(self.sasl, encrypted)
        self.nicks = NickPicker(settings.nick)
        self.lost_nick: str | None = None
        self.nick_losses = 0
        self.receipts = ReceiptTracker()
        self.is_attaching = False
        self.seen: dict[tuple[str, str], None] = {}
        self.replayed: deque[tuple[str, str, datetime]] = deque(maxlen=REPLAYED)
        self.sent_lines = SentLines(now)
        self.multiline = MultilineAssembler()
        self.whois: dict[str, Whois] = {}
        self.batches: dict[str, str] = {}
        self.refusals: dict[str, JoinRefusal] = {}
        self.asked_channels: set[str] = set()
        self.uninvited: set[str] = set()
        self.ctcp = CtcpResponder(now)
        self.outgoing: list[QueuedMessage] = []

    @property
    def isupport(self) -> ISupport:
        """The server's ISUPPORT tokens."""
        return self.roster.isupport

    def is_me(self, nick: str) -> bool:
        """Return whether `nick` is ours, under the server's case mapping."""
        return self.isupport.fold(nick) == self.isupport.fold(self.source.nick)

    def send(self, command: str, *params: str, urgent: bool = False, idle: bool = False) -> None:
        """Send a message; urgent ones overtake, idle ones are overtaken."""
        self.outgoing.append(QueuedMessage(Message(command, params), urgent=urgent, idle=idle))

    def send_later(
        self, delay: float, unless: Callable[[], bool], command: str, *params: str
    ) -> None:
        """Send a message in `delay` seconds, unless it is needless then."""
        self.outgoing.append(QueuedMessage(Message(command, params), delay, unless=unless))

    def is_desired(self, channel: str) -> bool:
        """Return whether `channel`, in any spelling, is one that we want to be in."""
        fold = self.isupport.fold
        return any(fold(name) == fold(channel) for name in self.desired_channels)

    def drop_uninvited(self, events: list[IrcEvent]) -> list[IrcEvent]:
        """Return the events without those of channels that we are about to leave."""
        if not self.uninvited:
            return events
        fold = self.isupport.fold
        kept = [e for e in events if e.channel is None or fold(e.channel) not in self.uninvited]
        gone = {fold(e.channel or "") for e in events if e.own and e.type == "PART"}
        self.uninvited -= gone
        return kept

    def learn_key(self, channel: str, key: str) -> None:
        """Use `key` ("" for none) for a channel that we want to be in, from the next JOIN on."""
        for name in self.desired_channels:
            if self.isupport.fold(name) == self.isupport.fold(channel):
                self.desired_channels[name] = key

    def join(self, channel: str, delay: float = 0.0) -> None:
        """Join `channel`, `delay` seconds from now, if we want to be in it and are not, then."""
        fold = self.isupport.fold
        for name, key in self.desired_channels.items():
            if fold(name) == fold(channel):
                params = (name, key) if key else (name,)
                needless = functools.partial(self._needless, name)
                self.send_later(delay, needless, "JOIN", *params)

    def join_all(self) -> None:
        """Join all that we want to be in, as many at once as the server says it takes."""
        # A key belongs to the channel at its place in the list, so those with keys come first.
        wanted = sorted(self.desired_channels.items(), key=lambda pair: not pair[1])
        at_once = min(self.isupport.targets("JOIN"), JOINS_AT_ONCE)
        for start in range(0, len(wanted), at_once):
            some = wanted[start : start + at_once]
            names, keys = ",".join(n for n, _ in some), ",".join(k for _, k in some if k)
            self.send("JOIN", *((names, keys) if keys else (names,)))

    @property
    def echoing(self) -> bool:
        """True when the server shows us what has become of our lines."""
        return self.capabilities.enabled >= ECHO

    def is_past(self, message: Message) -> bool:
        """Return whether it is old: in a batch of the past, or from before we came."""
        # Bouncers and servers replay history in a batch, or as plain lines whose time is before our
        # JOIN; one bouncer, bip, without any time, but in its own name.
        if self.batch_type(message) in PAST or str(message.source).endswith(f"!{BIP}"):
            return True
        if message.command not in ("PRIVMSG", "NOTICE"):
            return False
        channel = self.roster.channel(self.isupport.channel_of(message.param(0)) or "")
        since, time = channel.joined if channel else None, tagged_time(message)
        if channel and since and time:
            if since - time > SKEW:
                return True
            channel.joined = None  # what comes now is new, also when the clock is put back
        return False

    def is_repeated(self, message: Message) -> bool:
        """Return whether we have had it, by its message id, on this connection."""
        target, msgid = message.param(0), message.tags.get("msgid")
        if not msgid or message.command not in ("PRIVMSG", "NOTICE"):
            return False
        known = (msgid, target) in self.seen
        self.seen[msgid, target] = None
        if len(self.seen) > REMEMBERED:
            del self.seen[next(iter(self.seen))]
        return known

    def past_event(self, kind: EventType, message: Message, target: str, text: str) -> IrcEvent:
        """Return the event that a message of the past stands for."""
        event = self.event(kind, message, self.isupport.channel_of(target), target, text)
        return replace(event, batch_type=event.batch_type or "playback")

    def _needless(self, channel: str) -> bool:
        return channel not in self.desired_channels or self.roster.channel(channel) is not None

    def batch_type(self, message: Message) -> str | None:
        """Return the type of the batch that `message` is part of."""
        return self.batches.get(message.tags.get("batch", ""))

    def event(
        self, kind: EventType, message: Message, channel: str | None, target: str, text: str = ""
    ) -> IrcEvent:
        """Return the event that `message` stands for; its channel is spelled as when we joined."""
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
            time=self._time(message),
            msgid=message.tags.get("msgid") or None,
            own=self.is_me(source.nick),
            batch_type=self.batch_type(message),
            bot=self._is_bot(message, source.nick),
        )

    def _time(self, message: Message) -> datetime:
        """Return the time as the server says, unless its clock is wrong."""
        told, now = tagged_time(message), self.now()
        return told if told and -BEHIND <= told - now <= AHEAD else now

    def _is_bot(self, message: Message, nick: str) -> bool:
        member = self.roster.member(nick)
        return not BOT_TAGS.isdisjoint(message.tags) or bool(member and member.bot)

    def _account(self, message: Message, nick: str) -> str | None:
        if "account-tag" in self.capabilities.enabled:
            return message.tags.get("account") or None
        member = self.roster.member(nick)
        return member.account if member else None


def tagged_time(message: Message) -> datetime | None:
    """Return the server-time tag (https://ircv3.net/specs/extensions/server-time), always UTC."""
    try:
        found = datetime.fromisoformat(message.tags.get("time", ""))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # no time; in UTC before the first year or after the last
        return None
