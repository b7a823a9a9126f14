"""Mutable state of one connection, shared by the message handlers."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.message import ISupport, Message, Source
from harnesses.irc.protocol.multiline import MultilineAssembler
from harnesses.irc.protocol.sent_lines import ReceiptTracker, SentLines
from harnesses.irc.session.capabilities import ECHO, CapabilityNegotiation
from harnesses.irc.session.ctcp import CtcpResponder
from harnesses.irc.session.outgoing import NickPicker, QueuedMessage
from harnesses.irc.session.sasl import Sasl, mechanisms
from harnesses.irc.settings import NetworkSettings

Handler = Callable[["ConnectionState", Message], list[IrcEvent]]
"""Handles one received message: updates the state and returns the resulting events."""

HISTORY_BATCHES = frozenset({"chathistory", "playback", "znc.in/playback"})
"""Types of batches that contain history."""

ATTACHED_MARK = "attached"
"""The token of the PING whose PONG follows the bouncer's replay of JOINs for its channels."""

BIP_SOURCE = "bip@b.i.p"
"""The `user@host` under which the bouncer bip replays its backlog."""

CLOCK_SKEW = timedelta(seconds=1)
"""Tolerated clock skew between the servers of a network."""

MAX_AHEAD, MAX_BEHIND = timedelta(minutes=5), timedelta(days=1)
"""How far a server-time tag may be ahead of and behind our clock before it is ignored. The log is
ordered by time: a line dated next year would remain its newest for a year."""

MAX_SEEN_IDS = 1000
"""Number of recent message ids that are kept to detect duplicates."""

MAX_REPLAYED = 200
"""Number of replayed lines that are kept, to find lines of our own among them."""

WHOIS_TIMEOUT = 10.0
"""Seconds after which a WHOIS without an answer may be sent again."""

MAX_JOINS = 10
"""Maximum number of channels in one JOIN, which keeps the line within the length limit."""


BOT_TAGS = frozenset({"bot", "draft/bot", "inspircd.org/bot"})
"""Tags that mark a message as sent by a bot (https://ircv3.net/specs/extensions/bot-mode)."""


def utc_now() -> datetime:
    """Return the current time as an aware datetime in UTC."""
    return datetime.now(UTC)


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


@dataclass(slots=True)
class Whois:
    """A WHOIS that was sent at the time `asked` and is not answered yet.

    The callbacks `found` get its result, None if nobody has the nick.
    """

    asked: datetime
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

    `attempts` counts the refusals so far, the last of them at `time`; the next attempt follows
    `retry_in` seconds later. `numeric` is the server's, `reason` a text for people.
    """

    channel: str
    numeric: str
    reason: str
    attempts: int
    time: datetime
    retry_in: float


class Roster:
    """The channels that we are in and their members, keyed by names folded per CASEMAPPING.

    `isupport` are the server's tokens, replaced by `update_isupport`.
    """

    def __init__(self) -> None:
        self.isupport = ISupport()
        self._visited: set[str] = set()
        self._channels: dict[str, JoinedChannel] = {}

    def update_isupport(self, isupport: ISupport) -> None:
        """Use other tokens; all keys are folded again, as CASEMAPPING may have changed."""
        self.isupport = isupport
        self._channels = {self._fold(each.name): each for each in self._channels.values()}
        self._visited.update(self._channels)
        for channel in self._channels.values():
            channel.members = {self._fold(m.nick): m for m in channel.members.values()}
            channel.names = {self._fold(m.nick): m for m in channel.names.values()}

    @property
    def channels(self) -> list[str]:
        """The names of the channels that we are in, in the order of joining."""
        return [channel.name for channel in self._channels.values()]

    def channel(self, name: str) -> JoinedChannel | None:
        """Return the channel `name`, in any letter case, or None if we are not in it."""
        return self._channels.get(self._fold(name))

    def shared_channels(self, nick: str) -> list[JoinedChannel]:
        """Return the channels that we share with `nick`."""
        return [c for c in self._channels.values() if self._fold(nick) in c.members]

    def member(self, nick: str) -> Member | None:
        """Return the entry of `nick` in any shared channel, or None."""
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
        """Forget all channels; called when the connection is closed."""
        self._channels.clear()

    def add(self, name: str, member: Member) -> None:
        """Add a member who has joined `name`."""
        if channel := self.channel(name):
            channel.members[self._fold(member.nick)] = member
            if channel.names:  # a NAMES reply is under way, whose end replaces the members
                channel.names[self._fold(member.nick)] = member

    def remove(self, name: str, nick: str) -> None:
        """Remove a member who has left `name`."""
        if channel := self.channel(name):
            channel.members.pop(self._fold(nick), None)
            channel.names.pop(self._fold(nick), None)

    def rename(self, old: str, new: str) -> None:
        """Rename a member in all shared channels."""
        for channel in self.shared_channels(old):
            member = channel.members.pop(self._fold(old))
            member.nick = new
            channel.members[self._fold(new)] = member
            if channel.names.pop(self._fold(old), None):
                channel.names[self._fold(new)] = member

    def change_mode(self, name: str, nick: str, mode: str, *, on: bool) -> None:
        """Set or remove the member mode `mode` of `nick` in `name`."""
        channel = self.channel(name)
        if channel and (member := channel.members.get(self._fold(nick))):
            member.modes = member.modes | {mode} if on else member.modes - {mode}

    def is_operator(self, name: str, nick: str) -> bool:
        """Return whether `nick` is an operator of `name` or has a higher member mode."""
        channel = self.channel(name)
        member = channel.members.get(self._fold(nick)) if channel else None
        return bool(member and member.modes & self.isupport.operator_modes)

    def add_names(self, name: str, names: str) -> None:
        """Process the names of one 353 line (RPL_NAMREPLY).

        Names are nicks with their symbols (all of them with `multi-prefix`), or
        `nick!user@host` with `userhost-in-names`.
        """
        if channel := self.channel(name):
            for word in names.split():
                source = Source.parse(self.isupport.without_prefix(word))
                # Reuse the known entry: a NAMES reply has no account, and may lack user and host.
                # A new one is a member at once, so that a MODE or NICK before 366 finds it.
                key = self._fold(source.nick)
                known = channel.members.setdefault(key, Member(source.nick))
                known.user, known.host = source.user or known.user, source.host or known.host
                known.modes = self.isupport.modes_of(word)
                channel.names[key] = known

    def end_names(self, name: str) -> None:
        """Process 366 (RPL_ENDOFNAMES): the collected names replace the member list."""
        # A large channel takes several 353 lines; replacing the list earlier would lose members.
        if (channel := self.channel(name)) and channel.names:
            channel.members, channel.names = channel.names, {}

    def _fold(self, name: str) -> str:
        return self.isupport.fold(name)


class ConnectionState:
    """The mutable state of a session.

    `desired_channels` maps the channels that we want to be in to their keys, or "".
    `introduced` is set once PASS, NICK and USER are sent or queued.
    `lost_nick` is the nick that we want while we have another one; `nick_losses` counts how often
    we were renamed against our will.
    `seen` holds recent (message id, target) pairs, oldest first; `replayed` recent lines of
    history as (folded target, text, time).
    `refusals` are the channels that refuse us, `asked_channels` those that we have sent a JOIN for,
    and `uninvited` those that we were forced into and are about to leave; all by folded name.
    `is_attaching` is set while a bouncer replays the JOINs of the channels that it is already in.
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
        self.replayed: deque[tuple[str, str, datetime]] = deque(maxlen=MAX_REPLAYED)
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
        """Return whether `nick` is our current nick under the server's case mapping."""
        return self.isupport.fold(nick) == self.isupport.fold(self.source.nick)

    def send(self, command: str, *params: str, urgent: bool = False, idle: bool = False) -> None:
        """Queue a message; urgent ones go out first, idle ones after all others."""
        self.outgoing.append(QueuedMessage(Message(command, params), urgent=urgent, idle=idle))

    def send_later(
        self, delay: float, unless: Callable[[], bool], command: str, *params: str
    ) -> None:
        """Queue a message for `delay` seconds from now; drop it if `unless()` is true by then."""
        self.outgoing.append(QueuedMessage(Message(command, params), delay, unless=unless))

    def is_desired(self, channel: str) -> bool:
        """Return whether `channel`, in any letter case, is one that we want to be in."""
        fold = self.isupport.fold
        return any(fold(name) == fold(channel) for name in self.desired_channels)

    def drop_uninvited(self, events: list[IrcEvent]) -> list[IrcEvent]:
        """Return `events` without those of channels in `uninvited`.

        A channel leaves `uninvited` with our own PART, the last event that it causes.
        """
        if not self.uninvited:
            return events
        fold = self.isupport.fold
        kept = [e for e in events if e.channel is None or fold(e.channel) not in self.uninvited]
        gone = {fold(e.channel or "") for e in events if e.own and e.type == "PART"}
        self.uninvited -= gone
        return kept

    def learn_key(self, channel: str, key: str) -> None:
        """Set the key ("" for none) of a desired channel for the next JOIN."""
        for name in self.desired_channels:
            if self.isupport.fold(name) == self.isupport.fold(channel):
                self.desired_channels[name] = key

    def join(self, channel: str, delay: float = 0.0) -> None:
        """Queue a JOIN of `channel` for `delay` seconds from now, if it is a desired channel.

        The JOIN is dropped if by then we are in the channel or no longer want to be.
        """
        fold = self.isupport.fold
        for name, key in self.desired_channels.items():
            if fold(name) == fold(channel):
                params = (name, key) if key else (name,)
                needless = functools.partial(self._needless, name)
                self.send_later(delay, needless, "JOIN", *params)

    def join_all(self) -> None:
        """Join all desired channels, with as many in one JOIN as the server accepts."""
        # RFC 1459, section 4.2.1: keys match channels by position, so channels with keys go first.
        wanted = sorted(self.desired_channels.items(), key=lambda pair: not pair[1])
        at_once = min(self.isupport.targets("JOIN"), MAX_JOINS)
        for start in range(0, len(wanted), at_once):
            some = wanted[start : start + at_once]
            names, keys = ",".join(n for n, _ in some), ",".join(k for _, k in some if k)
            self.send("JOIN", *((names, keys) if keys else (names,)))

    def add_whois(self, nick: str, found: Callable[[Member | None], None]) -> bool:
        """Register `found` to be called with the result of a WHOIS; return whether to send it.

        It is not to be sent while one for this nick waits for its answer. One without an answer
        counts as lost after `WHOIS_TIMEOUT`; its callbacks get the result of the next one.
        """
        now = self.now()
        whois = self.whois.setdefault(self.isupport.fold(nick), Whois(now))
        is_lost = now - whois.asked >= timedelta(seconds=WHOIS_TIMEOUT)
        if is_lost:
            whois.asked = now
        whois.found.append(found)
        return is_lost or len(whois.found) == 1

    def end_whois(self, key: str) -> None:
        """Call back everybody who waits for the result of the WHOIS of a folded nick."""
        if whois := self.whois.pop(key, None):
            for found in whois.found:
                found(whois.member)

    @property
    def echoing(self) -> bool:
        """True if the server acknowledges our lines (echo-message with labeled-response)."""
        return self.capabilities.enabled >= ECHO

    def is_past(self, message: Message) -> bool:
        """Return whether `message` is replayed history and not a live message."""
        # Servers and bouncers replay history in a batch, or as plain lines whose server-time is
        # before our JOIN. The bouncer bip adds no time, but is itself the source of the lines.
        from_bip = str(message.source).endswith(f"!{BIP_SOURCE}")
        if from_bip or self.batch_type(message) in HISTORY_BATCHES:
            return True
        if message.command not in ("PRIVMSG", "NOTICE"):
            return False
        channel = self.roster.channel(self.isupport.channel_of(message.param(0)) or "")
        since, time = channel.joined if channel else None, tagged_time(message)
        if channel and since and time:
            if since - time > CLOCK_SKEW:
                return True
            # The first live line ends the replay. Later ones are live even if the server's clock is
            # set back before our JOIN.
            channel.joined = None
        return False

    def is_repeated(self, message: Message) -> bool:
        """Return whether `message` was already received on this connection; record its id."""
        # The target is part of the key: the copies of a message to several targets may share an id.
        target, msgid = message.param(0), message.tags.get("msgid")
        if not msgid or message.command not in ("PRIVMSG", "NOTICE"):
            return False
        known = (msgid, target) in self.seen
        self.seen[msgid, target] = None
        if len(self.seen) > MAX_SEEN_IDS:
            del self.seen[next(iter(self.seen))]
        return known

    def past_event(self, kind: EventType, message: Message, target: str, text: str) -> IrcEvent:
        """Return the event of a replayed message; its `batch_type` is never None."""
        event = self.event(kind, message, self.isupport.channel_of(target), target, text)
        return replace(event, batch_type=event.batch_type or "playback")

    def _needless(self, channel: str) -> bool:
        return channel not in self.desired_channels or self.roster.channel(channel) is not None

    def batch_type(self, message: Message) -> str | None:
        """Return the type of the batch that contains `message`, or None."""
        return self.batches.get(message.tags.get("batch", ""))

    def event(
        self, kind: EventType, message: Message, channel: str | None, target: str, text: str = ""
    ) -> IrcEvent:
        """Return the event of `message`; the channel is spelled as in our JOIN."""
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
        """Return the server-time if it is plausible, else the time of receipt."""
        told, now = tagged_time(message), self.now()
        return told if told and -MAX_BEHIND <= told - now <= MAX_AHEAD else now

    def _is_bot(self, message: Message, nick: str) -> bool:
        member = self.roster.member(nick)
        return not BOT_TAGS.isdisjoint(message.tags) or bool(member and member.bot)

    def _account(self, message: Message, nick: str) -> str | None:
        # With account-tag a missing tag means that the sender is not logged in; what the roster has
        # may be out of date.
        if "account-tag" in self.capabilities.enabled:
            return message.tags.get("account") or None
        member = self.roster.member(nick)
        return member.account if member else None


def tagged_time(message: Message) -> datetime | None:
    """Return the server-time tag in UTC, or None if it is missing or invalid.

    https://ircv3.net/specs/extensions/server-time; a time without a zone counts as UTC.
    """
    try:
        found = datetime.fromisoformat(message.tags.get("time", ""))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # OverflowError: the year leaves 1 to 9999 in UTC
        return None
