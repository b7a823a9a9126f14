"""One connection to one IRC server as a state machine: messages in, events and messages out.

Nothing here does I/O or waits. A `Session` lives as long as its connection; numerics are those of
https://modern.ircdocs.horse/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version

import structlog

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.isupport import ISupport, is_nick
from harnesses.irc.protocol.message import Message, Source
from harnesses.irc.session import connection_handlers, membership_handlers
from harnesses.irc.session.registration import QueuedMessage
from harnesses.irc.session.state import (
    PAST,
    ConnectionState,
    Handler,
    Member,
    Roster,
    Whois,
    utc_now,
)
from harnesses.irc.session.sts import Sts
from harnesses.irc.settings import NetworkSettings

log = structlog.get_logger()

CTCP_EVERY = 2.0
"""Seconds between two CTCP answers; what comes faster is not answered."""

_UNSENDABLE = str.maketrans("", "", "\0\r\n\x01")


class Session:
    """The state machine of a connection: messages in, events and messages out.

    `channels` are those to be in, with their keys or ""; the caller may change the mapping at any
    time. What is to be sent collects until `pop_outgoing` is called. `encrypted` says that nobody
    else reads along.
    """

    def __init__(
        self,
        network: str,
        settings: NetworkSettings,
        channels: Mapping[str, str],
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
        labelled = "label" in message.tags and self._state.labels.on_message(message)
        labelled |= self._state.batch_type(message) == "labeled-response"
        if labelled and message.command in ("PRIVMSG", "NOTICE"):
            return []  # whoever said it knows
        if message.command != "BATCH" and self._state.is_replayed(message):
            return []  # it is not to be done again, logged again, or believed of who is here now
        handler = HANDLERS.get(message.command)
        return handler(self._state, message) if handler else []

    def whois(self, nick: str, found: Callable[[Member | None], None]) -> Message | None:
        """Have `found` told who has a nick at this moment, None for nobody; return the message that
        asks, None where it has been asked already."""
        whois = self._state.whois.setdefault(self.isupport.fold(nick), Whois())
        whois.found.append(found)
        return Message("WHOIS", (nick,)) if len(whois.found) == 1 else None

    def label(self) -> str | None:
        """Return a label for a line that is to be echoed; None where the server does not."""
        return self._state.labels.label() if self._state.echoing else None

    def wrote(self, line: str) -> None:
        """A line has gone out, ours or one of the caller's."""
        self._state.sent_lines.add(line)

    def receipts(self) -> list[tuple[str, bool]]:
        """Return the labels answered since the last call, with whether the line went through."""
        return self._state.labels.pop_results() if self._state.echoing else []


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
        tags = {"label": state.labels.label()} if state.echoing else {}
        state.outgoing.append(QueuedMessage(replace(piece, tags=tags)))
    if line and pieces and (label := line.tags.get("label")):
        state.labels.confirm(label)
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


def _ctcp(state: ConnectionState, message: Message, word: str, rest: str) -> None:
    # https://modern.ircdocs.horse/ctcp: a query comes as PRIVMSG and is answered by NOTICE; a CTCP
    # NOTICE is an answer, and to answer that too would be a loop.
    answers = {"VERSION": f"Terrarium {version('terrarium')}", "PING": rest}
    last, now = state.ctcp_answered, state.now()
    if message.command == "NOTICE" or not message.source or word not in answers:
        return
    if not is_nick(message.source.nick):
        return
    if state.is_me(message.source.nick):
        return
    if state.batch_type(message) or (last and (now - last).total_seconds() < CTCP_EVERY):
        return
    state.ctcp_answered = now
    answer = f"{word} {answers[word]}".translate(_UNSENDABLE).strip()
    state.send("NOTICE", message.source.nick, f"\x01{answer}\x01")


def _mode(state: ConnectionState, message: Message) -> list[IrcEvent]:
    name = state.isupport.channel_of(message.param(0))
    text = " ".join(message.params[1:])
    for letter, nick, on in state.isupport.mode_changes(message.params[1:]) if name else ():
        if name and letter in state.isupport.prefix.values():
            state.roster.change_mode(name, nick, letter, on=on)
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
    **connection_handlers.HANDLERS,
    **membership_handlers.HANDLERS,
    "PRIVMSG": _talk,
    "NOTICE": _talk,
    "MODE": _mode,
    "TOPIC": _topic,
    "332": _topic_is,
    "BATCH": _batch,
}
