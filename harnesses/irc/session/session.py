"""One connection to one IRC server as a state machine: messages in, events and messages out.

Nothing here does I/O or waits. A `Session` lives as long as its connection; numerics are those of
https://modern.ircdocs.horse/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from datetime import datetime

import structlog

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.isupport import ISupport, is_nick
from harnesses.irc.protocol.message import Message, Source, parse
from harnesses.irc.protocol.sent_lines import Receipt
from harnesses.irc.session import (
    channel_joins,
    connection_handlers,
    membership_handlers,
    nick_recovery,
    refusals,
)
from harnesses.irc.session.registration import QueuedMessage
from harnesses.irc.session.state import (
    AHEAD,
    PAST,
    ConnectionState,
    Handler,
    JoinRefusal,
    Member,
    Roster,
    Whois,
    tagged_time,
    utc_now,
)
from harnesses.irc.session.sts import Sts
from harnesses.irc.settings import NetworkSettings

log = structlog.get_logger()


class Session:
    """The state machine of a connection: messages in, events and messages out.

    `channels` are those to be in, with their keys or ""; the caller may change the mapping at any
    time, and so does the session when it sees a new key. What is to be sent collects until
    `pop_outgoing` is called. `encrypted` says that nobody else reads along.
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
        """The network's name."""
        return self._state.network

    @property
    def nick(self) -> str:
        """Our nick at this moment."""
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
        """The channels we are in and who is there."""
        return self._state.roster

    @property
    def capabilities(self) -> frozenset[str]:
        """The IRCv3 capabilities in force."""
        return frozenset(self._state.capabilities.enabled)

    @property
    def is_ready(self) -> bool:
        """True when the server has welcomed us and its message of the day is over."""
        return self._state.ready

    @property
    def is_joined(self) -> bool:
        """True when we are in every channel that we want to be in."""
        return self.is_ready and all(
            self.roster.channel(name) for name in self._state.desired_channels
        )

    @property
    def error(self) -> str | None:
        """The text of the server's ERROR, which is its last line."""
        return self._state.error

    @property
    def refusals(self) -> list[JoinRefusal]:
        """The channels that we want to be in and that do not let us in."""
        known = self._state.refusals.values()
        return [refusal for refusal in known if self._state.is_desired(refusal.channel)]

    @property
    def account(self) -> str | None:
        """The services account that we are logged in to by SASL."""
        return self._state.sasl.account

    @property
    def login_problem(self) -> str:
        """A sentence on why services do not know us though they are to by SASL, or ""."""
        return connection_handlers.login_problem(self._state) if self.is_ready else ""

    @property
    def encrypted(self) -> bool:
        """True when the connection is encrypted."""
        return self._state.encrypted

    @property
    def sts(self) -> Sts | None:
        """The strict transport security that the server has announced."""
        return self._state.capabilities.sts

    @property
    def upgrade(self) -> int | None:
        """The port to go to, with TLS, before another word is said here."""
        capabilities = self._state.capabilities
        return capabilities.upgrade if capabilities.sts else None

    def start(self) -> None:
        """Begin: to be called once, when the connection stands.

        A password in the clear waits until the server has had its chance to ask for TLS.
        """
        state = self._state
        state.outgoing.append(QueuedMessage(state.capabilities.start(), urgent=True))
        if state.encrypted or not state.settings.password:
            connection_handlers.introduce(state)
        else:
            connection_handlers.introduce_later(state)

    def claim_nick(self, settings: NetworkSettings) -> None:
        """Go on by these settings, and ask for the nick that they name."""
        self._state.settings = settings
        if self.is_ready:  # else it is asked for then
            nick_recovery.claim_nick(self._state)

    def pop_outgoing(self) -> list[QueuedMessage]:
        """Return the messages to send since the last call, in order."""
        outgoing, self._state.outgoing = self._state.outgoing, []
        return outgoing

    def receive(self, message: Message) -> list[IrcEvent]:
        """Take one message of the server; return what happened, in order."""
        # Only lines of a batch can be part of a multiline message; all others go straight on.
        if message.command == "BATCH" or "batch" in message.tags:
            whole = self._state.multiline.feed(message)
            return [event for each in whole for event in self._handle(each)]
        return self._handle(message)

    def _handle(self, message: Message) -> list[IrcEvent]:
        # labeled-response: the answer to one line has its label, that of several is a batch of it.
        labelled = "label" in message.tags and self._state.receipts.on_message(message)
        labelled |= self._state.batch_type(message) == "labeled-response"
        if labelled and message.command in ("PRIVMSG", "NOTICE"):
            return []  # whoever said it knows
        if message.command != "BATCH" and self._state.is_past(message):
            # Not to be done or answered again, nor believed of who is here now.
            return [] if self._state.is_repeated(message) else _replay(self._state, message)
        if self._state.is_repeated(message):
            return []
        handler = HANDLERS.get(message.command)
        events = handler(self._state, message) if handler else []
        return self._state.drop_uninvited(events)

    def whois(self, nick: str, found: Callable[[Member | None], None]) -> Message | None:
        """Have `found` told who has a nick at this moment, None for nobody; return the message that
        asks, None where it has been asked already."""
        whois = self._state.whois.setdefault(self.isupport.fold(nick), Whois())
        whois.found.append(found)
        return Message("WHOIS", (nick,)) if len(whois.found) == 1 else None

    def has_replayed(self, target: str, text: str, since: datetime) -> bool:
        """Return whether the server has played back such words to `target`, said `since` then."""
        key = self.isupport.fold(target)
        return any(
            (key, text) == (place, words) and time >= since
            for place, words, time in self._state.replayed
        )

    def track(self, target: str) -> tuple[str, Mapping[str, str]]:
        """Return what `receipts` will call a line to `target`, and the tags that it goes out
        with."""
        if self._state.echoing:
            label = self._state.receipts.label()
            return label, {"label": label}
        return self._state.receipts.track(self.isupport.fold(target)), {}

    def fence(self) -> Message | None:
        """Return the message that has the server tell what became of the lines before it; None
        where it tells by itself."""
        if self._state.echoing:
            return None
        return Message("PING", (self._state.receipts.fence(),))

    def wrote(self, line: str) -> None:
        """A line has gone out, ours or one of the caller's."""
        self._state.sent_lines.add(line)
        if line.startswith("USER "):
            connection_handlers.on_introduced(self._state)
        elif line.startswith("JOIN ") and (message := parse(line)):
            names = message.param(0).split(",")
            self._state.asked_channels.update(map(self.isupport.fold, names))

    def receipts(self) -> list[tuple[str, Receipt]]:
        """Return the tracked lines whose fate is known since the last call."""
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
    """Say it again in pieces, once; the whole line counts as said then."""
    line = state.sent_lines.take_rejected(message.tags.get("label", ""))
    pieces = state.sent_lines.pieces(line) if line else []
    command, target = (line.command, line.param(0)) if line else ("", "")
    log.warning(
        "irc.line_too_long",
        network=state.network,
        command=command,
        target=target if pieces else "",  # it may be a password otherwise
        pieces=len(pieces),
    )
    for piece in pieces:
        tags = {"label": state.receipts.label()} if state.echoing else {}
        state.outgoing.append(QueuedMessage(replace(piece, tags=tags)))
    if line and pieces and (label := line.tags.get("label")):
        state.receipts.confirm(label)
    return []


def _error(state: ConnectionState, message: Message) -> list[IrcEvent]:
    state.error = message.param(0)
    return []


def _talk(state: ConnectionState, message: Message) -> list[IrcEvent]:
    target, text = message.param(0), message.param(1)
    kind: EventType = "NOTICE" if message.command == "NOTICE" else "PRIVMSG"
    if text.startswith("\x01"):
        # https://modern.ircdocs.horse/ctcp: the closing \x01 may be missing
        word, _, rest = text.strip("\x01").partition(" ")
        if word.upper() != "ACTION":
            _ctcp(state, message, word.upper(), rest)
            return []
        kind, text = "ACTION", rest
    if not state.registered:
        return []  # "*** Looking up your hostname"
    event = state.event(kind, message, state.isupport.channel_of(target), target, text)
    if event.own and state.isupport.fold(target) == "nickserv":
        return []  # an echo of what we told services, which may be a password
    return [event]


def _replay(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Return what was said in the past, which the log may have missed; without a time, or of a
    batch that has none, nobody could tell."""
    time, target, text = tagged_time(message), message.param(0), message.param(1)
    if time is None or time > state.now() + AHEAD:
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
    event = state.past_event(kind, message, target, text)
    return [] if event.own and event.channel is None else [replace(event, time=time)]


def _ctcp(state: ConnectionState, message: Message, word: str, rest: str) -> None:
    # A query comes as PRIVMSG and is answered by NOTICE; a CTCP NOTICE is an answer, and to answer
    # that too would be a loop.
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
        elif name and letter == "k" and (nick != "*" or not on):  # "*" hides the key
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
    # https://ircv3.net/specs/extensions/batch: "+ref" opens, "-ref" closes. A batch within one of
    # the past is of the past, whatever its own type.
    reference = message.param(0)
    if reference.startswith("+"):
        outer = state.batch_type(message)
        state.batches[reference[1:]] = outer if outer in PAST else message.param(1)
    else:
        state.batches.pop(reference[1:], None)
    return []


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
