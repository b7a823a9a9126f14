"""One connection to an IRC server as a state machine: messages in, events and messages out.

No I/O and no waiting. A `Session` lives as long as its connection. Numerics are those of
https://modern.ircdocs.horse/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from datetime import datetime

import structlog

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.message import ISupport, Message, Source, is_nick, parse
from harnesses.irc.protocol.sent_lines import Receipt
from harnesses.irc.session import (
    channel_joins,
    connection_handlers,
    membership_handlers,
    nick_recovery,
    refusals,
)
from harnesses.irc.session.outgoing import QueuedMessage
from harnesses.irc.session.state import (
    HISTORY_BATCHES,
    MAX_AHEAD,
    ConnectionState,
    Handler,
    JoinRefusal,
    Member,
    Roster,
    tagged_time,
    utc_now,
)
from harnesses.irc.session.sts import Sts
from harnesses.irc.settings import NetworkSettings

log = structlog.get_logger()


class Session:
    """The state machine of a connection: messages in, events and messages out.

    `channels` maps the desired channels to their keys, or "". The caller may change the mapping at
    any time; the session updates it when a key changes. Outgoing messages accumulate until
    `pop_outgoing` is called. `encrypted` says whether the connection uses TLS.
    """

    def __init__(
        self,
        network: str,
        settings: NetworkSettings,
        channels: MutableMapping[str, str],
        now: Callable[[], datetime] = utc_now,
        encrypted: bool = False,
    ) -> None:
        self._state = ConnectionState(network, settings, channels, now, encrypted)

    @property
    def network(self) -> str:
        """The name of the network."""
        return self._state.network

    @property
    def nick(self) -> str:
        """Our current nick."""
        return self._state.source.nick

    @property
    def source(self) -> Source:
        """Our source as others see it; user and host are None while unknown."""
        return self._state.source

    @property
    def isupport(self) -> ISupport:
        """The server's ISUPPORT tokens."""
        return self._state.isupport

    @property
    def roster(self) -> Roster:
        """The channels that we are in and their members."""
        return self._state.roster

    @property
    def capabilities(self) -> frozenset[str]:
        """The IRCv3 capabilities that are enabled."""
        return frozenset(self._state.capabilities.enabled)

    @property
    def is_ready(self) -> bool:
        """True after the welcome and the end of the message of the day."""
        return self._state.ready

    @property
    def is_joined(self) -> bool:
        """True if the session is ready and in all desired channels."""
        return self.is_ready and all(
            self.roster.channel(name) for name in self._state.desired_channels
        )

    @property
    def error(self) -> str | None:
        """The reason for which the connection is to be closed, or None.

        It is the text of the server's ERROR, or says that the login that `sasl_required` demands is
        missing.
        """
        return self._state.error

    @property
    def refusals(self) -> list[JoinRefusal]:
        """The desired channels that refuse our JOIN."""
        known = self._state.refusals.values()
        return [refusal for refusal in known if self._state.is_desired(refusal.channel)]

    @property
    def account(self) -> str | None:
        """The services account that we are logged in to, by SASL or NickServ."""
        return self._state.sasl.account

    @property
    def login_problem(self) -> str:
        """The reason why SASL is configured but we are not logged in, for people; else ""."""
        return connection_handlers.login_problem(self._state) if self.is_ready else ""

    @property
    def encrypted(self) -> bool:
        """True if the connection uses TLS."""
        return self._state.encrypted

    @property
    def sts(self) -> Sts | None:
        """The strict transport security that the server has announced, or None."""
        return self._state.capabilities.sts

    @property
    def upgrade(self) -> int | None:
        """The TLS port to reconnect to at once, as STS demands on an unencrypted connection."""
        # Read after every received line, while servers rarely announce STS.
        capabilities = self._state.capabilities
        return capabilities.upgrade if capabilities.sts else None

    def start(self) -> None:
        """Begin the registration. Call this once, when the connection is established.

        On an unencrypted connection PASS waits for the server's capabilities, which may demand TLS.
        """
        state = self._state
        state.outgoing.append(QueuedMessage(state.capabilities.start(), urgent=True))
        if state.encrypted or not state.settings.password:
            connection_handlers.introduce(state)
        else:
            connection_handlers.introduce_later(state)

    def claim_nick(self, settings: NetworkSettings) -> None:
        """Switch to `settings` and request the nick that they name."""
        self._state.settings = settings
        if self.is_ready:  # otherwise `start_recovery` requests it at the end of the MOTD
            nick_recovery.claim_nick(self._state)

    def pop_outgoing(self) -> list[QueuedMessage]:
        """Remove and return the outgoing messages, in order."""
        outgoing, self._state.outgoing = self._state.outgoing, []
        return outgoing

    def receive(self, message: Message) -> list[IrcEvent]:
        """Process a received message; return the resulting events, in order."""
        # Only lines of a batch can be part of a multiline message; others bypass the assembler.
        if message.command == "BATCH" or "batch" in message.tags:
            whole = self._state.multiline.feed(message)
            return [event for each in whole for event in self._handle(each)]
        return self._handle(message)

    def _handle(self, message: Message) -> list[IrcEvent]:
        # labeled-response: a response of one line carries the label; one of several lines is a
        # batch, and the label is on the line that opens it.
        labelled = "label" in message.tags and self._state.receipts.on_message(message)
        labelled |= self._state.batch_type(message) == "labeled-response"
        if labelled and message.command in ("PRIVMSG", "NOTICE"):
            return []  # an echo: the sender of the line gets a receipt instead of an event
        if message.command != "BATCH" and self._state.is_past(message):
            # History has no handler: an old JOIN or QUIT must not change the roster, and an old
            # request must not be answered again.
            return [] if self._state.is_repeated(message) else _replay(self._state, message)
        if self._state.is_repeated(message):
            return []
        handler = HANDLERS.get(message.command)
        events = handler(self._state, message) if handler else []
        return self._state.drop_uninvited(events)

    def whois(self, nick: str, found: Callable[[Member | None], None]) -> Message | None:
        """Register `found` to be called with who has `nick`, or with None if nobody has it.

        Return the WHOIS to send, or None if one for this nick is already pending.
        """
        return Message("WHOIS", (nick,)) if self._state.add_whois(nick, found) else None

    def has_replayed(self, target: str, text: str, since: datetime) -> bool:
        """Return whether the server has replayed this text to `target`, dated `since` or later."""
        key = self.isupport.fold(target)
        return any(
            (key, text) == (place, words) and time >= since
            for place, words, time in self._state.replayed
        )

    def track(self, target: str) -> tuple[str, Mapping[str, str]]:
        """Track a line to `target`; return its id in `receipts()` and the tags to send it with."""
        if self._state.echoing:
            label = self._state.receipts.label()
            return label, {"label": label}
        return self._state.receipts.track(self.isupport.fold(target)), {}

    def fence(self) -> Message | None:
        """Return a PING that makes the server acknowledge the lines before it.

        Return None if it acknowledges lines by itself (echo-message).
        """
        if self._state.echoing:
            return None
        return Message("PING", (self._state.receipts.fence(),))

    def wrote(self, line: str) -> None:
        """Record that a line was written to the connection, by the session or by the caller."""
        self._state.sent_lines.add(line)
        if line.startswith("USER "):
            connection_handlers.on_introduced(self._state)
        # Plugins send their own JOINs; channels joined that way are not left as uninvited.
        elif line.startswith("JOIN ") and (message := parse(line)):
            names = message.param(0).split(",")
            self._state.asked_channels.update(map(self.isupport.fold, names))

    def receipts(self) -> list[tuple[str, Receipt]]:
        """Remove and return the receipts that arrived since the last call, by tracking id."""
        return self._state.receipts.pop_results()


def _ping(state: ConnectionState, message: Message) -> list[IrcEvent]:
    state.send("PONG", *message.params, urgent=True)
    return []


def _standard_reply(state: ConnectionState, message: Message) -> list[IrcEvent]:
    # https://ircv3.net/specs/extensions/standard-replies
    words = " ".join(message.params)
    log.warning("irc.server_says", network=state.network, kind=message.command, words=words)
    return []


def _too_long(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Send the pieces of a line rejected by 417; the line then counts as accepted."""
    line = state.sent_lines.take_rejected(message.tags.get("label", ""))
    pieces = state.sent_lines.split_once(line) if line else []
    command, target = (line.command, line.param(0)) if line else ("", "")
    log.warning(
        "irc.line_too_long",
        network=state.network,
        command=command,
        target=target if pieces else "",  # of other commands, param 0 may be a password (PASS)
        pieces=len(pieces),
    )
    for piece in pieces:
        tags = {"label": state.receipts.label()} if state.echoing else {}
        state.outgoing.append(QueuedMessage(replace(piece, tags=tags)))
    # `_handle` has recorded the 417 as a refusal of the labelled line; the pieces replace it.
    if line and pieces and (label := line.tags.get("label")):
        state.receipts.override_accepted(label)
    return []


def _error(state: ConnectionState, message: Message) -> list[IrcEvent]:
    state.error = message.param(0)
    return []


def _talk(state: ConnectionState, message: Message) -> list[IrcEvent]:
    target, text = message.param(0), message.param(1)
    kind: EventType = "NOTICE" if message.command == "NOTICE" else "PRIVMSG"
    if text.startswith("\x01"):
        # https://modern.ircdocs.horse/ctcp: the final \x01 may be missing, for instance if the
        # server has truncated the line.
        word, _, rest = text.strip("\x01").partition(" ")
        if word.upper() != "ACTION":
            _ctcp(state, message, word.upper(), rest)
            return []
        kind, text = "ACTION", rest
    if not state.registered:
        return []  # server notices such as "*** Looking up your hostname"
    event = state.event(kind, message, state.isupport.channel_of(target), target, text)
    if event.own and state.isupport.fold(target) == "nickserv":
        return []  # an echo of a message to services may contain a password
    return [event]


def _replay(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Return the event of a replayed message, which the log may lack.

    Only messages and topics with a plausible time yield one: without a time they cannot be compared
    with the log.
    """
    time, target, text = tagged_time(message), message.param(0), message.param(1)
    if time is None or time > state.now() + MAX_AHEAD:
        return []
    if message.command == "TOPIC":
        return [replace(state.past_event("TOPIC", message, target, text), time=time)]
    if message.command not in ("PRIVMSG", "NOTICE"):
        return []
    kind: EventType = "NOTICE" if message.command == "NOTICE" else "PRIVMSG"
    if text.startswith("\x01"):
        word, _, text = text.strip("\x01").partition(" ")
        if word.upper() != "ACTION":
            return []
        kind = "ACTION"
    state.replayed.append((state.isupport.fold(target), text, time))
    # The tag's own time is kept even if it is more than BEHIND old: here it is expected to be old.
    event = state.past_event(kind, message, target, text)
    return [] if event.own and event.channel is None else [replace(event, time=time)]


def _ctcp(state: ConnectionState, message: Message, word: str, rest: str) -> None:
    # A CTCP query is a PRIVMSG and its reply a NOTICE. A reply is never answered, as two clients
    # could then answer each other for ever.
    source = message.source
    if message.command == "NOTICE" or not source or state.batch_type(message):
        return
    if not is_nick(source.nick) or state.is_me(source.nick):
        return
    person = f"{source.user}@{source.host}" if source.host else source.nick
    if answer := state.ctcp.answer(person, word, rest):
        state.send("NOTICE", source.nick, f"\x01{answer}\x01")


def _mode(state: ConnectionState, message: Message) -> list[IrcEvent]:
    name = state.isupport.channel_of(message.param(0))
    text = " ".join(message.params[1:])
    for letter, nick, on in state.isupport.mode_changes(message.params[1:]) if name else ():
        if name and letter in state.isupport.prefix.values():
            state.roster.change_mode(name, nick, letter, on=on)
        elif name and letter == "k" and (nick != "*" or not on):  # servers may mask the key as "*"
            state.learn_key(name, nick if on else "")
    return [state.event("MODE", message, name, name, text)] if name else []


def _topic(state: ConnectionState, message: Message) -> list[IrcEvent]:
    name, text = message.param(0), message.param(1)
    _set_topic(state, name, text)
    return [state.event("TOPIC", message, name, name, text)]


def _topic_is(state: ConnectionState, message: Message) -> list[IrcEvent]:
    _set_topic(state, message.param(1), message.param(2))
    return []


def _set_topic(state: ConnectionState, name: str, text: str) -> None:
    if channel := state.roster.channel(name):
        channel.topic = text


def _batch(state: ConnectionState, message: Message) -> list[IrcEvent]:
    # https://ircv3.net/specs/extensions/batch: "+ref" opens, "-ref" closes. A batch nested in a
    # batch of history is history too, whatever its own type.
    reference = message.param(0)
    if reference.startswith("+"):
        outer = state.batch_type(message)
        state.batches[reference[1:]] = outer if outer in HISTORY_BATCHES else message.param(1)
    else:
        state.batches.pop(reference[1:], None)
    return []


# Later entries override earlier ones: 437 is about a nick or a channel, and the handler in
# `connection_handlers` passes those about channels on to `refusals`.
HANDLERS: Mapping[str, Handler] = {
    "PING": _ping,
    "ERROR": _error,
    "417": _too_long,
    **dict.fromkeys(("FAIL", "WARN", "NOTE"), _standard_reply),
    **refusals.HANDLERS,
    **connection_handlers.HANDLERS,
    **membership_handlers.HANDLERS,
    **channel_joins.HANDLERS,
    "PRIVMSG": _talk,
    "NOTICE": _talk,
    "MODE": _mode,
    "TOPIC": _topic,
    "332": _topic_is,
    "BATCH": _batch,
}
