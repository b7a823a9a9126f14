"""Connection registration up to the first JOIN: capabilities with STS and SASL, and the welcome.

https://ircv3.net/specs/extensions/capability-negotiation. STS may abort the negotiation, SASL must
finish before its end. A server without CAP answers 421 or nothing, and registers us all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from harnesses.irc.protocol.message import Message, Source, parse
from harnesses.irc.session import nick
from harnesses.irc.session.session import ECHO, MULTILINE, Handlers, QueuedMessage, Session
from harnesses.irc.session.sts import Sts

log = structlog.get_logger()

SASL_TIMEOUT, CAP_TIMEOUT = 15.0, 5.0
"""Seconds that services have to complete SASL before we abort it and continue without, and that a
server has to answer CAP LS; some, and the bouncer bip, ignore it."""

MAX_JOINS = 10
"""Maximum number of channels in one JOIN, which keeps the line within the length limit."""

WANTED = frozenset(
    (
        "server-time", "message-tags", "batch", "msgid", "account-tag", "account-notify",
        "extended-join", "chghost", "multi-prefix", "userhost-in-names", "cap-notify",
        "standard-replies", "draft/message-redaction",
    )
)  # fmt: skip
"""Capabilities that we support; those that a server offers are requested."""

LINES = frozenset({MULTILINE, "batch", "message-tags"})
"""Requested only together: a multiline message is a batch, and its lines are tagged."""

HANDLERS = Handlers()


def start(session: Session) -> None:
    """Begin the registration. Call this once, when the connection is established.

    On an unencrypted connection PASS waits for the server's capabilities, which may demand TLS.
    """
    # A server that knows CAP suspends the registration until CAP END.
    session.send("CAP", "LS", "302", urgent=True)
    if session.encrypted or not session.settings.password:
        _introduce(session)
    else:
        _introduce(session, CAP_TIMEOUT)


def login_problem(session: Session) -> str:
    """Return why SASL is configured but we are not logged in, for people; else ""."""
    settings, sasl = session.settings, session.sasl
    is_logged_in = sasl.succeeded or (sasl.account and not settings.sasl_required)
    if is_logged_in or not (settings.sasl_username or settings.sasl_required):
        return ""
    if not sasl.is_wanted:
        return "no login method can be used: a password needs tls = true, or sasl that names PLAIN"
    return sasl.failure or "the server offers no SASL"


def _introduce(session: Session, delay: float = 0.0) -> None:
    """Queue PASS, NICK and USER, unless that was done before.

    With a delay they are dropped if by then the server has answered CAP LS.
    """
    if session.introduced:
        return
    session.introduced = not delay
    settings = session.settings
    lines = [("NICK", settings.nick), ("USER", settings.username, "0", "*", settings.realname)]
    if settings.password:
        lines.insert(0, ("PASS", settings.password.get_secret_value()))

    def is_needless() -> bool:
        return session.introduced or session.caps_listed

    for line in lines:
        session.send(*line, urgent=True, delay=delay, unless=is_needless)


@HANDLERS.on("421", "451")
def _without_cap(session: Session, _message: Message) -> None:
    _introduce(session)


@HANDLERS.on("CAP")
def _cap(session: Session, message: Message) -> None:
    if len(message.params) < 3:
        return
    pairs = (word.partition("=") for word in message.params[-1].split())
    named = {name: value for name, _, value in pairs}
    match message.param(1).upper():
        case "LS":
            session.offered.update(named)
            # With "*" the list continues in another line.
            if message.param(2) != "*" or len(message.params) == 3:
                session.caps_listed = True
                _request(session, session.offered)
        case "NEW":
            session.offered.update(named)
            _request(session, named)
        case "DEL":
            session.capabilities.difference_update(named)
        case "ACK":
            session.unanswered_requests -= 1
            for name in named:
                if name.startswith("-"):  # an ACK with "-" disables a capability
                    session.capabilities.discard(name[1:])
                else:
                    session.capabilities.add(name)
            if "sasl" in named and not session.sasl.succeeded:
                _start_sasl(session)
            _end_negotiation(session)
        case "NAK":
            # A NAK rejects all capabilities of its REQ; request each of them separately.
            again = list(named) if len(named) > 1 else []
            session.unanswered_requests += len(again) - 1
            for name in again:
                session.send("CAP", "REQ", name, urgent=True)
            _end_negotiation(session)
    _require_login(session)


def _request(session: Session, named: Mapping[str, str]) -> None:
    """Request what we support of the capabilities `named`."""
    # STS is only announced: a client must not request it.
    if "sts" in named:
        session.sts = Sts.parse(named["sts"])
    if session.upgrade:
        return
    if session.caps_listed:
        _introduce(session)
    # `sasl` is requested even if the server lists none of our mechanisms: it may offer others
    # later.
    known = WANTED | {"sasl"} if session.sasl.is_wanted else WANTED
    for names_together in (ECHO, LINES):
        known |= names_together if session.offered.keys() >= names_together else frozenset()
    if wanted := sorted(known.intersection(named) - session.capabilities):
        session.unanswered_requests += 1
        session.send("CAP", "REQ", " ".join(wanted), urgent=True)
    else:
        _end_negotiation(session)


def _start_sasl(session: Session) -> None:
    sasl = session.sasl
    was_running = sasl.is_running
    _send_urgently(session, sasl.start(session.offered.get("sasl", "")))
    if sasl.is_running and not was_running:
        # A server may offer SASL while its services are down; then nobody answers. If the server
        # does not answer the abort ("*") either, CAP END follows regardless.
        session.send("AUTHENTICATE", "*", delay=SASL_TIMEOUT, unless=lambda: not sasl.is_running)
        session.send("CAP", "END", delay=SASL_TIMEOUT + 5, unless=lambda: session.caps_ended)


def _end_negotiation(session: Session) -> None:
    # CAP END waits until every REQ is answered and SASL is over: ending earlier would complete the
    # registration without SASL.
    if not (session.caps_ended or session.unanswered_requests > 0 or session.sasl.is_running):
        session.caps_ended = True
        session.send("CAP", "END", urgent=True)


@HANDLERS.on("AUTHENTICATE", "900", "901", "902", "903", "904", "905", "906", "907", "908")
def _authenticate(session: Session, message: Message) -> None:
    _send_urgently(session, session.sasl.receive(message))
    if session.caps_listed:
        _end_negotiation(session)
    _require_login(session)


def _send_urgently(session: Session, messages: Iterable[Message]) -> None:
    session.outgoing += [QueuedMessage(message, urgent=True) for message in messages]


def _require_login(session: Session) -> None:
    """Set `session.error` if `sasl_required` is set and SASL has ended without success.

    The queued CAP END is dropped with all other messages, so the server does not complete our
    registration; setting the error makes the caller close the connection.
    """
    is_over = session.registered or session.caps_ended
    required = session.settings.sasl_required and not session.sasl.succeeded
    if required and is_over and not session.error:
        why = login_problem(session)
        session.error = f"not logged in by SASL, which sasl_required asks for: {why}"
        session.outgoing.clear()


@HANDLERS.on("001")
def _welcome(session: Session, message: Message) -> None:
    session.registered = session.caps_ended = True
    if problem := login_problem(session):
        log.warning("irc.not_logged_in", network=session.network, why=problem)
    elif session.sasl.account:
        log.info("irc.logged_in", network=session.network, account=session.sasl.account)
    _require_login(session)
    session.server_name = message.nick
    # The first parameter is the nick as the server has it, which may have truncated ours.
    session.source = Source(message.param(0) or session.nick)
    # Many servers end 001 with our nick!user@host, from which the line budget is computed.
    mask = Source.parse(message.param(-1).rpartition(" ")[2])
    if mask.host and session.is_me(mask.nick):
        session.source = Source(session.nick, mask.user, mask.host)


@HANDLERS.on("005")
def _isupport(session: Session, message: Message) -> None:
    # The tokens are between our nick and "are supported by this server"; 005 may be repeated.
    session.roster.update_isupport(session.isupport.with_tokens(message.params[1:-1]))


@HANDLERS.on("376", "422")
def _motd_end(session: Session, _message: Message) -> None:
    if not session.registered or session.is_ready:
        return
    session.is_ready = True
    if mapping := session.isupport.unknown_casemapping:
        log.warning("irc.unknown_casemapping", casemapping=mapping[:40], taken_for="rfc1459")
    if not session.sasl.account:
        # IDENTIFY without an account means the account of the current nick, so under another
        # nick the account must be named.
        wanted = session.settings.nick
        nick.tell_nickserv(session, "IDENTIFY", "" if session.is_me(wanted) else wanted)
    if session.isupport.bot:
        session.send("MODE", session.nick, f"+{session.isupport.bot}")
    if session.settings.umodes:
        session.send("MODE", session.nick, session.settings.umodes)
    for line in session.settings.perform:
        if performed := parse(line.get_secret_value()):
            # With a label, so that the echo of a line, which may have a password, is no event.
            if session.is_echoing:
                tags = session.track(performed.param(0), lambda _: None, session.new_label())
                performed = replace(performed, tags=tags)
            session.outgoing.append(QueuedMessage(performed))
    if session.is_bouncer:
        # The PONG follows the bouncer's replay of JOINs for its channels.
        session.is_attaching = True
        ping = session.ping(lambda: setattr(session, "is_attaching", False))
        session.outgoing.append(QueuedMessage(ping, urgent=True))
    nick.start_recovery(session)
    # RFC 1459, section 4.2.1: keys match channels by position, so channels with keys go first.
    desired = sorted(session.desired_channels.items(), key=lambda pair: not pair[1])
    at_once = min(session.isupport.targets("JOIN"), MAX_JOINS)
    for begin in range(0, len(desired), at_once):
        some = desired[begin : begin + at_once]
        keys = [",".join(key for _, key in some if key)]
        session.send("JOIN", ",".join(name for name, _ in some), *filter(None, keys))
