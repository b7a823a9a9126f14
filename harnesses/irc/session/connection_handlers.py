"""From the first line of a connection to the welcome, and from there into the channels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import Message, Source
from harnesses.irc.session import nick_recovery
from harnesses.irc.session.registration import QueuedMessage
from harnesses.irc.session.state import ConnectionState, Handler

SASL_WITHIN = 15.0
"""Seconds that services have for an authentication before we go on without."""


def introduce(state: ConnectionState) -> None:
    """Say who we are, once."""
    if state.introduced:
        return
    state.introduced = True
    if password := state.settings.password:
        state.send("PASS", password.get_secret_value(), urgent=True)
    state.outgoing.append(QueuedMessage(state.nicks.start(), urgent=True))
    state.send("USER", "terrarium", "0", "*", "Terrarium", urgent=True)


def _cap(state: ConnectionState, message: Message) -> list[IrcEvent]:
    idle = not state.sasl.running
    answers = state.capabilities.receive(message) if len(message.params) > 2 else []
    if state.capabilities.listed and not state.capabilities.upgrade:
        introduce(state)
    _send_urgently(state, answers)
    if idle and state.sasl.running:
        # Services may have died behind the server: nobody answers then.
        state.send_later(SASL_WITHIN, lambda: not state.sasl.running, "AUTHENTICATE", "*")
        state.send_later(SASL_WITHIN + 5, lambda: state.capabilities.has_ended, "CAP", "END")
    return []


def _no_cap(state: ConnectionState, message: Message) -> list[IrcEvent]:
    introduce(state)
    return []


def _authenticate(state: ConnectionState, message: Message) -> list[IrcEvent]:
    _send_urgently(state, state.capabilities.authenticate(message))
    return []


def _send_urgently(state: ConnectionState, messages: Iterable[Message]) -> None:
    state.outgoing += [QueuedMessage(message, urgent=True) for message in messages]


def _nick_refused(state: ConnectionState, message: Message) -> list[IrcEvent]:
    if state.registered:
        nick_recovery.on_nick_in_use(state)
    else:
        state.outgoing.append(state.nicks.next_nick(invalid=message.command == "432"))
    return []


def _welcome(state: ConnectionState, message: Message) -> list[IrcEvent]:
    state.registered = True
    state.capabilities.on_welcome()
    state.source = Source(message.param(0) or state.source.nick)
    # Many servers end 001 with our own nick!user@host, which tells how long our lines may be.
    mask = Source.parse(message.param(-1).rpartition(" ")[2])
    if mask.host and state.is_me(mask.nick):
        state.source = Source(state.source.nick, mask.user, mask.host)
    return []


def _isupport(state: ConnectionState, message: Message) -> list[IrcEvent]:
    # Between our nick and "are supported by this server"; 005 may come several times.
    state.roster.isupport = state.isupport.with_tokens(message.params[1:-1])
    return []


def _motd_end(state: ConnectionState, message: Message) -> list[IrcEvent]:
    if state.registered and not state.ready:
        state.ready = True
        password = state.settings.nickserv_password
        if password and not state.sasl.account and not state.sasl.betrayed:
            # By another nick we are asking for an account that is not called like us.
            account = "" if state.is_me(state.settings.nick) else f"{state.settings.nick} "
            identify = f"IDENTIFY {account}{password.get_secret_value()}"
            state.send("PRIVMSG", "NickServ", identify, urgent=True)
        if state.isupport.bot:
            state.send("MODE", state.source.nick, f"+{state.isupport.bot}")
        nick_recovery.start_recovery(state)
        state.join_all()
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
}
