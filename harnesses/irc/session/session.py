"""The state of one connection to an IRC server, which the message handlers read and change.

No I/O and no waiting. Numerics are those of https://modern.ircdocs.horse/.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.message import ACCEPTED, LOST, ISupport, Message, Receipt, Source, parse
from harnesses.irc.session.sasl import Sasl, mechanisms
from harnesses.irc.session.sts import Sts
from harnesses.irc.settings import NetworkSettings

Handler = Callable[["Session", Message], list[IrcEvent] | None]
"""Handles one received message: updates the session and returns the resulting events, if any."""


class Handlers(dict[str, Handler]):
    """The handlers of received messages by command or numeric."""

    def on(self, *commands: str) -> Callable[[Handler], Handler]:
        """Return a decorator that makes a function the handler of `commands`."""

        def add(handler: Handler) -> Handler:
            self.update(dict.fromkeys(commands, handler))
            return handler

        return add


ECHO = frozenset({"echo-message", "labeled-response"})
"""Capabilities with which the server acknowledges our lines. They are requested only together:
without a label, the echo of a line of ours cannot be told from a line that another client of the
same bouncer sends in our name."""

MULTILINE = "draft/multiline"
"""The capability and the type of the batch of a multiline message."""

_BOUNCERS = ("znc.in/", "soju.im/")

_BOT_TAGS = frozenset({"bot", "draft/bot", "inspircd.org/bot"})
"""Tags that mark a message as sent by a bot (https://ircv3.net/specs/extensions/bot-mode)."""

MAX_AHEAD, MAX_BEHIND = timedelta(minutes=5), timedelta(days=1)
"""How far a server-time tag may be ahead of and behind our clock before it is ignored. The log is
ordered by time: a line dated next year would remain its newest for a year."""

MAX_REPLAYED = 200
"""Number of replayed lines that are kept, to find lines of our own among them."""


def utc_now() -> datetime:
    """Return the current time as an aware datetime in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message to send, `delay` seconds from now.

    `urgent` messages go out before all others, `idle` ones after all others. A delayed message is
    dropped if `unless()` is true when it is due.
    """

    message: Message
    delay: float = 0.0
    urgent: bool = False
    idle: bool = False
    unless: Callable[[], bool] | None = None


@dataclass(slots=True)
class Member:
    """A member of a channel, or the result of a WHOIS.

    `modes` are the member's letters of PREFIX in the channel. `service` is set if the server calls
    them a service or an operator (313, RPL_WHOISOPERATOR).
    """

    nick: str
    user: str | None = None
    host: str | None = None
    account: str | None = None
    bot: bool = False
    service: bool = False
    modes: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PendingLine:
    """A line to a folded target, sent with a label or without; `done` gets its receipt."""

    target: str
    is_labelled: bool
    done: Callable[[Receipt], None]


@dataclass(slots=True)
class Batch:
    """An open batch; while one collects a multiline message, its `opening` and the lines so far."""

    type: str
    opening: Message | None = None
    lines: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class Whois:
    """The server's answers so far about a nick that we have asked for by WHOIS.

    The callbacks `found` get the result, None if nobody has the nick.
    """

    member: Member | None = None
    found: list[Callable[[Member | None], None]] = field(default_factory=list)


@dataclass(slots=True)
class JoinedChannel:
    """A channel that we are in; `names` accumulates a NAMES reply until its end.

    `joined` is the server-time of our JOIN. It is None without server-time, and becomes None with
    the first live line, as it only serves to recognise replayed lines before that.
    """

    name: str
    joined: datetime | None = None
    topic: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    names: dict[str, Member] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JoinRefusal:
    """A channel that refuses our JOIN.

    `attempts` counts the refusals so far; the next attempt follows the last of them after
    `retry_in` seconds. `numeric` and `reason` are the server's.
    """

    channel: str
    numeric: str
    reason: str
    attempts: int
    retry_in: float


class Roster:
    """The channels that we are in and their members, keyed by names folded per CASEMAPPING.

    `isupport` are the server's tokens, replaced by `update_isupport`. They are here and not in the
    `Session`, as names are folded between two connections too.
    """

    def __init__(self) -> None:
        self.isupport = ISupport()
        self._visited: set[str] = set()  # folded, of this connection
        self._channels: dict[str, JoinedChannel] = {}
        self._first_nicks: dict[str, str] = {}  # of those who have another now, which is folded

    def fold(self, name: str) -> str:
        """Fold a nick or channel name per CASEMAPPING, so that equal names are equal strings."""
        return self.isupport.fold(name)

    def update_isupport(self, isupport: ISupport) -> None:
        """Use other tokens; all keys are folded again, as CASEMAPPING may have changed."""
        self.isupport = isupport
        self._channels = {self.fold(each.name): each for each in self._channels.values()}
        self._visited.update(self._channels)
        for channel in self._channels.values():
            channel.members = {self.fold(m.nick): m for m in channel.members.values()}
            channel.names = {self.fold(m.nick): m for m in channel.names.values()}

    @property
    def channels(self) -> list[str]:
        """The names of the channels that we are in, in the order of joining."""
        return [channel.name for channel in self._channels.values()]

    def channel(self, name: str) -> JoinedChannel | None:
        """Return the channel `name`, in any letter case, or None if we are not in it."""
        return self._channels.get(self.fold(name))

    def shared_channels(self, nick: str) -> list[JoinedChannel]:
        """Return the channels that we share with `nick`."""
        return [c for c in self._channels.values() if self.fold(nick) in c.members]

    def people(self) -> list[Member]:
        """Return the members of all channels, once for each channel they are in."""
        return [member for c in self._channels.values() for member in c.members.values()]

    def person(self, nick: str) -> Member | None:
        """Return the entry of `nick` in any shared channel, or None."""
        return next(iter(self.entries(nick)), None)

    def first_nick(self, nick: str) -> str:
        """Return the nick that somebody had when we first saw them; `nick` itself if they have not
        changed it before our eyes."""
        return self._first_nicks.get(self.fold(nick), nick)

    def member(self, name: str, nick: str) -> Member | None:
        """Return the member `nick` of the channel `name`, or None if they or we are not in it."""
        channel = self.channel(name)
        return channel.members.get(self.fold(nick)) if channel else None

    def nicks(self, name: str) -> list[str]:
        """Return the nicks in the channel `name`, sorted; empty if we are not in it."""
        channel = self.channel(name)
        members = channel.members.values() if channel else ()
        return sorted((member.nick for member in members), key=str.casefold)

    def topic(self, name: str) -> str:
        """Return the topic of the channel `name`, "" without one or if we are not in it."""
        channel = self.channel(name)
        return channel.topic if channel else ""

    def entries(self, nick: str) -> list[Member]:
        """Return the entries of `nick`, one for each channel that we share."""
        return [c.members[self.fold(nick)] for c in self.shared_channels(nick)]

    def enter(self, name: str, joined: datetime | None = None) -> None:
        """Add `name` to the channels that we are in."""
        self._visited.add(self.fold(name))
        self._channels[self.fold(name)] = JoinedChannel(name, joined)

    def has_visited(self, name: str) -> bool:
        """Return whether we are in `name`, or have been in it on this connection."""
        return self.fold(name) in self._visited

    def leave(self, name: str) -> None:
        """Remove `name` from the channels that we are in."""
        self._channels.pop(self.fold(name), None)
        known = self._first_nicks.items()
        self._first_nicks = {nick: old for nick, old in known if self.shared_channels(nick)}

    def reset(self) -> None:
        """Forget what the last connection has said."""
        self.isupport = ISupport()
        self._visited.clear()
        self.clear()

    def clear(self) -> None:
        """Forget all channels; called when the connection is closed."""
        self._channels.clear()
        self._first_nicks.clear()

    def add(self, name: str, member: Member) -> None:
        """Add a member who has joined `name`."""
        if channel := self.channel(name):
            channel.members[self.fold(member.nick)] = member
            if channel.names:  # a NAMES reply is under way, whose end replaces the members
                channel.names[self.fold(member.nick)] = member

    def remove(self, name: str, nick: str) -> None:
        """Remove a member who has left `name`."""
        if channel := self.channel(name):
            channel.members.pop(self.fold(nick), None)
            channel.names.pop(self.fold(nick), None)
        if not self.shared_channels(nick):  # the nick may have another owner before we see it again
            self._first_nicks.pop(self.fold(nick), None)

    def rename(self, old: str, new: str) -> None:
        """Rename a member in all shared channels."""
        first = self._first_nicks.pop(self.fold(old), old)
        if self.fold(first) != self.fold(new):
            self._first_nicks[self.fold(new)] = first
        for channel in self.shared_channels(old):
            member = channel.members.pop(self.fold(old))
            member.nick = new
            channel.members[self.fold(new)] = member
            if channel.names.pop(self.fold(old), None):
                channel.names[self.fold(new)] = member

    def change_mode(self, name: str, nick: str, mode: str, *, on: bool) -> None:
        """Set or remove the member mode `mode` of `nick` in `name`."""
        if member := self.member(name, nick):
            member.modes = member.modes | {mode} if on else member.modes - {mode}

    def is_operator(self, name: str, nick: str) -> bool:
        """Return whether `nick` is an operator of `name` or has a higher member mode."""
        member, modes = self.member(name, nick), list(self.isupport.prefix.values())
        # PREFIX lists the highest mode first.
        operators = modes[: modes.index("o") + 1] if "o" in modes else []
        return bool(member and member.modes.intersection(operators))

    def add_names(self, name: str, names: str) -> None:
        """Process the names of one 353 line (RPL_NAMREPLY).

        Names are nicks with their symbols (all of them with `multi-prefix`), or
        `nick!user@host` with `userhost-in-names`.
        """
        if channel := self.channel(name):
            for word in names.split():
                bare = self.isupport.without_prefix(word)
                source = Source.parse(bare)
                # Reuse the known entry: a NAMES reply has no account, and may lack user and host.
                # A new one is a member at once, so that a MODE or NICK before 366 finds it.
                key = self.fold(source.nick)
                known = channel.members.setdefault(key, Member(source.nick))
                known.user, known.host = source.user or known.user, source.host or known.host
                known.modes = {self.isupport.prefix[each] for each in word.removesuffix(bare)}
                channel.names[key] = known

    def end_names(self, name: str) -> None:
        """Process 366 (RPL_ENDOFNAMES): the collected names replace the member list."""
        # A large channel takes several 353 lines; replacing the list earlier would lose members.
        if (channel := self.channel(name)) and channel.names:
            channel.members, channel.names = channel.names, {}


class Session:
    """The state of one connection; it lives as long as the connection.

    `desired_channels` maps the channels that we want to be in to their keys, or ""; the caller may
    change the mapping at any time, and a key is updated when the channel's operators change it.
    `encrypted` says whether the connection uses TLS.
    `roster` is that of an earlier connection to the network, which is reset; `fold` is its folding.
    `introduced` is set once PASS, NICK and USER are sent or queued, `registered` with the welcome,
    `is_ready` with the end of the message of the day.
    `server_name` is the name that the server gives itself.
    `error` is the reason for which the connection is to be closed: the text of the server's ERROR,
    or that the login which `sasl_required` demands is missing.
    `capabilities` are those that are enabled, `offered` those of the server with their values;
    `caps_listed` is set when the server's list is complete, `caps_ended` with our CAP END.
    `pending_lines` are those that the server has not acknowledged yet, by their labels; `pings` our
    PINGs by token, with what to call when they are answered.
    `lost_nick` is the nick that we want while we have another one; `nick_losses` counts how often
    we were renamed against our will, `nicks_refused` the refusals during the registration.
    `replayed` holds recent lines of history as (folded target, text, time).
    `join_refusals` are the channels that refuse us, `asked_channels` those that we have sent a JOIN
    for, and `uninvited` those that we were forced into and are about to leave; all by folded name.
    `is_attaching` is set while a bouncer replays the JOINs of the channels that it is already in.
    `ctcp_replies` are our recent replies to CTCP queries as (person, time), oldest first.
    """

    def __init__(
        self,
        network: str,
        settings: NetworkSettings,
        channels: MutableMapping[str, str],
        now: Callable[[], datetime] = utc_now,
        encrypted: bool = False,
        roster: Roster | None = None,
    ) -> None:
        self.network, self.settings, self.desired_channels = network, settings, channels
        self.now, self.encrypted = now, encrypted
        self.source = Source(settings.nick)
        self.introduced = self.registered = self.is_ready = False
        self.error: str | None = None
        self.server_name = ""
        self.roster = roster or Roster()
        self.roster.reset()
        self.fold = self.roster.fold
        self.sasl = Sasl(mechanisms(settings, encrypted), network)
        self.sts: Sts | None = None
        self.capabilities: set[str] = set()
        self.offered: dict[str, str] = {}
        self.unanswered_requests = 0
        self.caps_listed = self.caps_ended = False
        self.lost_nick: str | None = None
        self.nick_losses = self.nicks_refused = 0
        self.pending_lines: dict[str, PendingLine] = {}
        self.pings: dict[str, Callable[[], None]] = {}
        self._numbers = itertools.count(1)
        self.is_attaching = False
        self.replayed: deque[tuple[str, str, datetime]] = deque(maxlen=MAX_REPLAYED)
        self.whois_queries: dict[str, Whois] = {}
        self.batches: dict[str, Batch] = {}
        self.join_refusals: dict[str, JoinRefusal] = {}
        self.asked_channels: set[str] = set()
        self.uninvited: set[str] = set()
        self.ctcp_replies: deque[tuple[str, datetime]] = deque()
        self.outgoing: list[QueuedMessage] = []

    @property
    def nick(self) -> str:
        """Our current nick."""
        return self.source.nick

    @property
    def isupport(self) -> ISupport:
        """The server's ISUPPORT tokens."""
        return self.roster.isupport

    @property
    def is_joined(self) -> bool:
        """True if the session is ready and in all desired channels."""
        return self.is_ready and all(map(self.roster.channel, self.desired_channels))

    @property
    def refusals(self) -> list[JoinRefusal]:
        """The desired channels that refuse our JOIN."""
        return [each for each in self.join_refusals.values() if self.is_desired(each.channel)]

    @property
    def upgrade(self) -> int | None:
        """The TLS port to reconnect to at once, without another word on this unencrypted
        connection, as STS demands."""
        return self.sts.port if self.sts and not self.encrypted else None

    @property
    def is_echoing(self) -> bool:
        """True if the server acknowledges our lines (echo-message with labeled-response)."""
        return self.capabilities >= ECHO

    @property
    def is_bouncer(self) -> bool:
        """True if we are connected to a bouncer, judging by its vendor capabilities."""
        return any(name.startswith(_BOUNCERS) for name in self.offered)

    def is_me(self, nick: str) -> bool:
        """Return whether `nick` is our current nick under the server's case mapping."""
        return self.fold(nick) == self.fold(self.nick)

    def is_desired(self, channel: str) -> bool:
        """Return whether `channel`, in any letter case, is one that we want to be in."""
        fold = self.fold
        return any(fold(name) == fold(channel) for name in self.desired_channels)

    def send(
        self,
        command: str,
        *params: str,
        urgent: bool = False,
        idle: bool = False,
        delay: float = 0.0,
        unless: Callable[[], bool] | None = None,
    ) -> None:
        """Queue a message as `QueuedMessage` describes."""
        message = Message(command, params)
        self.outgoing.append(QueuedMessage(message, delay, urgent, idle, unless))

    def pop_outgoing(self) -> list[QueuedMessage]:
        """Remove and return the outgoing messages, in order."""
        outgoing, self.outgoing = self.outgoing, []
        return outgoing

    def wrote(self, line: str) -> None:
        """Record that a line was written to the connection, whoever has sent it."""
        if line.startswith("USER "):
            # Delayed lines are dropped once `introduced` is set: it is set by the last of them.
            self.introduced = True
        # Plugins send their own JOINs; channels joined that way are not left as uninvited.
        elif line.startswith("JOIN ") and (message := parse(line)):
            self.asked_channels.update(map(self.fold, message.param(0).split(",")))

    def join(self, channel: str, delay: float = 0.0) -> None:
        """Queue a JOIN of a desired channel for `delay` seconds from now; it is dropped if by then
        we are in the channel or no longer want to be."""

        def is_needless(name: str) -> bool:
            return name not in self.desired_channels or self.roster.channel(name) is not None

        for name, key in self.desired_channels.items():
            if self.fold(name) == self.fold(channel):
                unless = functools.partial(is_needless, name)
                self.send("JOIN", name, *([key] if key else []), delay=delay, unless=unless)

    def ping(self, answered: Callable[[], None]) -> Message:
        """Return a PING to send; `answered` is called with its PONG, when the server has processed
        all lines before it."""
        token = f"p{next(self._numbers):x}"
        self.pings[token] = answered
        return Message("PING", (token,))

    def new_label(self) -> str:
        """Return the label of another line to send."""
        return f"t{next(self._numbers):x}"

    def track(self, target: str, done: Callable[[Receipt], None], label: str) -> Mapping[str, str]:
        """Track a line to `target` that is sent now, whose receipt `done` gets; return its tags."""
        self.pending_lines[label] = PendingLine(self.fold(target), self.is_echoing, done)
        return self.label_tags(label)

    def label_tags(self, label: str) -> Mapping[str, str]:
        """Return the tags of a line with a label, none if the server does not echo it."""
        return {"label": label} if self.is_echoing else {}

    def settle(self, label: str, receipt: Receipt) -> bool:
        """Pass on the receipt of a pending line; return whether there is such a line."""
        line = self.pending_lines.pop(label, None)
        if line:
            line.done(replace(receipt, nick=self.nick))
        return line is not None

    def fence(self, labels: Iterable[str]) -> Message | None:
        """Return a PING whose PONG acknowledges the lines with these labels that were not refused.

        Return None if the server acknowledges lines by itself (echo-message).
        """

        def accept() -> None:
            for label in labels:
                self.settle(label, ACCEPTED)

        return None if self.is_echoing else self.ping(accept)

    def close(self) -> None:
        """Forget all channels; the receipts of pending lines are LOST."""
        for label in tuple(self.pending_lines):
            self.settle(label, LOST)
        self.roster.clear()

    def whois(self, nick: str, found: Callable[[Member | None], None]) -> Message:
        """Return a WHOIS to send; `found` is called with who has `nick`, or None if nobody has it.

        Without an answer it waits for that to the next WHOIS of this nick.
        """
        self.whois_queries.setdefault(self.fold(nick), Whois()).found.append(found)
        return Message("WHOIS", (nick,))

    def batch_type(self, message: Message) -> str | None:
        """Return the type of the batch that contains `message`, or None."""
        batch = self.batches.get(message.tags.get("batch", ""))
        return batch.type if batch else None

    def event(
        self, kind: EventType, message: Message, channel: str | None, target: str, text: str = ""
    ) -> IrcEvent:
        """Return the event of `message`; the channel is spelled as in our JOIN."""
        source = message.source or Source("")
        known = self.roster.channel(channel) if channel else None
        member = self.roster.person(source.nick)
        # With account-tag a missing tag means that the sender is not logged in; what the roster has
        # may be out of date.
        has_tag = "account-tag" in self.capabilities
        known_account = member.account if member else None
        time, now = tagged_time(message), self.now()
        return IrcEvent(
            network=self.network,
            type=kind,
            channel=known.name if known else channel,
            target=target,
            nick=source.nick,
            user=source.user,
            host=source.host,
            account=message.tags.get("account") or None if has_tag else known_account,
            text=text,
            time=time if time and -MAX_BEHIND <= time - now <= MAX_AHEAD else now,
            msgid=message.tags.get("msgid") or None,
            own=self.is_me(source.nick),
            batch_type=self.batch_type(message),
            bot=not _BOT_TAGS.isdisjoint(message.tags) or bool(member and member.bot),
        )


def tagged_time(message: Message) -> datetime | None:
    """Return the server-time tag in UTC, or None if it is missing or invalid.

    https://ircv3.net/specs/extensions/server-time; a time without a zone counts as UTC.
    """
    try:
        found = datetime.fromisoformat(message.tags.get("time", ""))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # OverflowError: the year leaves 1 to 9999 in UTC
        return None
