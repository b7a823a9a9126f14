"""One connection to one IRC server as a state machine: messages in, events and messages out.

Nothing here does I/O or waits. A `Session` lives as long as its connection; numerics are those of
https://modern.ircdocs.horse/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from harnesses.irc import presence, talk
from harnesses.irc.event import IrcEvent
from harnesses.irc.isupport import ISupport
from harnesses.irc.message import Message, Source
from harnesses.irc.registration import Outgoing
from harnesses.irc.roster import Roster
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.state import Handler, State, utc_now
from harnesses.irc.sts import Sts

PAST = frozenset({"chathistory", "playback", "znc.in/playback"})
"""Batches of things that happened before now."""

SASL_WITHIN = 15.0
"""Seconds that services have for an authentication before we go on without."""


class Session:
    """What we know of a connection, and what the protocol wants said.

    `channels` are those to be in, with their keys or ""; the caller may change the mapping at any
    time. What is to be sent collects until `take` is called. `encrypted` says that nobody else
    reads along.
    """

    def __init__(
        self,
        network: str,
        settings: NetworkSettings,
        channels: Mapping[str, str],
        now: Callable[[], datetime] = utc_now,
        encrypted: bool = False,
    ) -> None:
        self._state = State(network, settings, channels, now, encrypted)

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
        """Who we are for the others; user and host are None while unknown."""
        return self._state.source

    @property
    def isupport(self) -> ISupport:
        """What the server has said about itself."""
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
    def ready(self) -> bool:
        """Whether the server has welcomed us and its message of the day is over."""
        return self._state.ready

    @property
    def joined(self) -> bool:
        """Whether we are in every channel that we want to be in."""
        return self.ready and all(self.roster.channel(name) for name in self._state.wanted)

    @property
    def error(self) -> str | None:
        """What the server said in its ERROR, which is its last line."""
        return self._state.error

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted."""
        return self._state.encrypted

    @property
    def sts(self) -> Sts | None:
        """What the server has announced about transport security."""
        return self._state.capabilities.sts

    @property
    def upgrade(self) -> int | None:
        """The port to go to, with TLS, before another word is said here."""
        return self._state.capabilities.upgrade

    def start(self) -> None:
        """Begin: to be called once, when the connection stands.

        A password in the clear waits until the server has had its chance to ask for TLS.
        """
        state = self._state
        state.outgoing.append(Outgoing(state.capabilities.start(), urgent=True))
        if state.encrypted or not state.settings.password:
            _introduce(state)

    def take(self) -> list[Outgoing]:
        """What is to be sent since the last call, in order."""
        outgoing, self._state.outgoing = self._state.outgoing, []
        return outgoing

    def receive(self, message: Message) -> list[IrcEvent]:
        """Take one message of the server; return what happened, in order."""
        past = self._state.batch_type(message) in PAST
        if past and message.command not in ("PRIVMSG", "NOTICE", "BATCH"):
            return []  # who came and went before us must not change who is here now
        handler = HANDLERS.get(message.command)
        return handler(self._state, message) if handler else []


def _introduce(state: State) -> None:
    if state.introduced:
        return
    state.introduced = True
    if password := state.settings.password:
        state.send("PASS", password.get_secret_value(), urgent=True)
    state.outgoing.append(Outgoing(state.nicks.start(), urgent=True))
    state.send("USER", "terrarium", "0", "*", "Terrarium", urgent=True)


def _cap(state: State, message: Message) -> list[IrcEvent]:
    idle = not state.sasl.running
    answers = state.capabilities.receive(message) if len(message.params) > 2 else []
    if state.capabilities.listed and not state.capabilities.upgrade:
        _introduce(state)
    _send_urgently(state, answers)
    if idle and state.sasl.running:
        # Services may have died behind the server: nobody answers then.
        state.send_later(SASL_WITHIN, lambda: not state.sasl.running, "AUTHENTICATE", "*")
        state.send_later(SASL_WITHIN + 5, lambda: state.capabilities.ended, "CAP", "END")
    return []


def _no_cap(state: State, message: Message) -> list[IrcEvent]:
    _introduce(state)
    return []


def _authenticate(state: State, message: Message) -> list[IrcEvent]:
    _send_urgently(state, state.capabilities.authenticate(message))
    return []


def _send_urgently(state: State, messages: Iterable[Message]) -> None:
    state.outgoing += [Outgoing(message, urgent=True) for message in messages]


def _nick_refused(state: State, message: Message) -> list[IrcEvent]:
    if not state.registered:
        state.outgoing.append(state.nicks.refused(invalid=message.command == "432"))
    return []


def _welcome(state: State, message: Message) -> list[IrcEvent]:
    state.registered = True
    state.capabilities.welcomed()
    state.source = Source(message.param(0) or state.source.nick)
    mask = Source.parse(message.param(-1).rpartition(" ")[2])
    if mask.host and state.is_me(mask.nick):
        state.source = Source(state.source.nick, mask.user, mask.host)
    return []


def _isupport(state: State, message: Message) -> list[IrcEvent]:
    state.roster.isupport = state.isupport.updated(message.params[1:-1])
    return []


def _motd_end(state: State, message: Message) -> list[IrcEvent]:
    if state.registered and not state.ready:
        state.ready = True
        password = state.settings.nickserv_password
        if password and not state.sasl.account and not state.sasl.betrayed:
            identify = f"IDENTIFY {password.get_secret_value()}"
            state.send("PRIVMSG", "NickServ", identify, urgent=True)
        for name in state.wanted:
            state.join(name)
    return []


def _ping(state: State, message: Message) -> list[IrcEvent]:
    state.send("PONG", *message.params, urgent=True)
    return []


def _error(state: State, message: Message) -> list[IrcEvent]:
    state.error = message.param(0)
    return []


HANDLERS: Mapping[str, Handler] = {
    "CAP": _cap,
    **dict.fromkeys(("421", "451"), _no_cap),
    **dict.fromkeys(
        ("AUTHENTICATE", "900", "901", "902", "903", "904", "905", "906", "907", "908"),
        _authenticate,
    ),
    "001": _welcome,
    "005": _isupport,
    "376": _motd_end,
    "422": _motd_end,
    **dict.fromkeys(("432", "433", "436", "437"), _nick_refused),
    "PING": _ping,
    "ERROR": _error,
    **presence.HANDLERS,
    **talk.HANDLERS,
}
