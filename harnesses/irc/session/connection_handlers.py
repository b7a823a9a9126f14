"""Message handlers of connection registration, up to the first JOIN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import Message, Source
from harnesses.irc.session import nick_recovery, nickserv, refusals
from harnesses.irc.session.outgoing import QueuedMessage
from harnesses.irc.session.state import ATTACHED_MARK, ConnectionState, Handler

log = structlog.get_logger()

SASL_TIMEOUT = 15.0
"""Seconds that services have to complete SASL before we abort it and continue without."""


CAP_TIMEOUT = 5.0
"""Seconds that a server has to answer CAP LS; some, and the bouncer bip, ignore it."""


def introduce(state: ConnectionState) -> None:
    """Queue PASS, NICK and USER, unless that was done before."""
    if state.introduced:
        return
    state.introduced = True
    state.outgoing += [QueuedMessage(message, urgent=True) for message in _introduction(state)]


def introduce_later(state: ConnectionState) -> None:
    """Queue PASS, NICK and USER for the case that the server does not answer CAP LS in time."""

    def needless() -> bool:
        return state.introduced or state.capabilities.listed

    state.outgoing += [
        QueuedMessage(message, CAP_TIMEOUT, urgent=True, unless=needless)
        for message in _introduction(state)
    ]


def on_introduced(state: ConnectionState) -> None:
    """Record that USER, the last line of the introduction, was sent."""
    # Delayed lines are dropped once `introduced` is set, so an earlier one must not set it.
    state.introduced = True


def _introduction(state: ConnectionState) -> list[Message]:
    settings = state.settings
    password = settings.password.get_secret_value() if settings.password else None
    return [
        *([Message("PASS", (password,))] if password else []),
        state.nicks.start(),
        Message("USER", (settings.username, "0", "*", settings.realname)),
    ]


def _cap(state: ConnectionState, message: Message) -> list[IrcEvent]:
    idle = not state.sasl.running
    answers = state.capabilities.receive(message) if len(message.params) > 2 else []
    if state.capabilities.listed and not state.capabilities.upgrade:
        introduce(state)
    _send_urgently(state, answers)
    if idle and state.sasl.running:
        # A server may offer SASL while its services are down; then nobody answers. If the server
        # does not answer the abort ("*") either, CAP END follows regardless.
        state.send_later(SASL_TIMEOUT, lambda: not state.sasl.running, "AUTHENTICATE", "*")
        state.send_later(SASL_TIMEOUT + 5, lambda: state.capabilities.has_ended, "CAP", "END")
    _require_login(state)
    return []


def _no_cap(state: ConnectionState, message: Message) -> list[IrcEvent]:
    introduce(state)
    return []


def _authenticate(state: ConnectionState, message: Message) -> list[IrcEvent]:
    _send_urgently(state, state.capabilities.authenticate(message))
    _require_login(state)
    return []


def _send_urgently(state: ConnectionState, messages: Iterable[Message]) -> None:
    state.outgoing += [QueuedMessage(message, urgent=True) for message in messages]


def _nick_refused(state: ConnectionState, message: Message) -> list[IrcEvent]:
    if state.registered and state.isupport.is_channel(message.param(1)):
        return refusals.on_refused(state, message)  # 437, ERR_UNAVAILRESOURCE: nick or channel
    if state.registered:
        nick_recovery.on_nick_refused(state, message)
    else:
        state.outgoing.append(state.nicks.next_nick(invalid=message.command == "432"))
    return []


def _welcome(state: ConnectionState, message: Message) -> list[IrcEvent]:
    state.registered = True
    state.capabilities.on_welcome()
    _report_login(state)
    # The first parameter is the nick as the server has it, which may have truncated ours.
    state.source = Source(message.param(0) or state.source.nick)
    # Many servers end 001 with our nick!user@host, from which the line budget is computed.
    mask = Source.parse(message.param(-1).rpartition(" ")[2])
    if mask.host and state.is_me(mask.nick):
        state.source = Source(state.source.nick, mask.user, mask.host)
    return []


def _report_login(state: ConnectionState) -> None:
    """Log whether SASL has logged us in."""
    if problem := login_problem(state):
        log.warning("irc.not_logged_in", network=state.network, why=problem)
    elif state.sasl.account:
        log.info("irc.logged_in", network=state.network, account=state.sasl.account)
    _require_login(state)


def login_problem(state: ConnectionState) -> str:
    """Return why SASL is configured but we are not logged in, for people; else ""."""
    settings = state.settings
    is_logged_in = state.sasl.succeeded or (state.sasl.account and not settings.sasl_required)
    if is_logged_in or not (settings.sasl_username or settings.sasl_required):
        return ""
    if not state.sasl.wanted:
        return "no way to log in can be used: a password needs tls = true, or sasl that names PLAIN"
    return state.sasl.failure or "the server offers no SASL"


def _require_login(state: ConnectionState) -> None:
    """Set `state.error` if `sasl_required` is set and SASL has ended without success.

    The queued CAP END is dropped with all other messages, so the server does not complete our
    registration; setting the error makes the caller close the connection.
    """
    through = state.registered or state.capabilities.has_ended
    if state.settings.sasl_required and through and not state.sasl.succeeded and not state.error:
        state.error = f"not logged in by SASL, which sasl_required asks for: {login_problem(state)}"
        state.outgoing.clear()


def _isupport(state: ConnectionState, message: Message) -> list[IrcEvent]:
    # The tokens are between our nick and "are supported by this server"; 005 may be repeated.
    state.roster.update_isupport(state.isupport.with_tokens(message.params[1:-1]))
    return []


def _motd_end(state: ConnectionState, message: Message) -> list[IrcEvent]:
    if state.registered and not state.ready:
        state.ready = True
        if mapping := state.isupport.unknown_casemapping:
            log.warning("irc.unknown_casemapping", casemapping=mapping[:40], taken_for="rfc1459")
        if not state.sasl.account:
            # IDENTIFY without an account means the account of the current nick, so under another
            # nick the account must be named.
            is_ours = state.is_me(state.settings.nick)
            nickserv.tell(state, "IDENTIFY", "" if is_ours else state.settings.nick)
        if state.isupport.bot:
            state.send("MODE", state.source.nick, f"+{state.isupport.bot}")
        if state.capabilities.of_bouncer:
            state.is_attaching = True
            state.send("PING", ATTACHED_MARK, urgent=True)
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
    **dict.fromkeys(("432", "433", "436", "437", "438", "447"), _nick_refused),
}
