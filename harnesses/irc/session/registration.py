"""Connection registration up to the first JOIN, and our nick: choosing one, and its recovery.

https://ircv3.net/specs/extensions/capability-negotiation. STS may abort the negotiation, SASL must
finish before its end. A server without CAP answers 421 or nothing, and registers us all the same.

We request the wanted nick when its holder quits or is renamed in a shared channel, when MONITOR
(https://ircv3.net/specs/extensions/monitor) or, without that, ISON reports it free, after NickServ
has disconnected its holder (GHOST), and every few minutes where MONITOR cannot tell. If somebody
renames us (an operator, services, a nick collision after a netsplit) we request it again after a
growing pause.
"""

from __future__ import annotations

import fnmatch
import random
import string
from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from harnesses.irc.protocol.message import Message, Source, parse
from harnesses.irc.session.session import ECHO, MULTILINE, Handlers, Member, QueuedMessage, Session
from harnesses.irc.session.sts import Sts
from harnesses.irc.settings import NetworkSettings
from terrarium.loopback import is_loopback

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

NICK_RETRY_FIRST, NICK_RETRY_MAX = 2.0, 60.0
"""Seconds before the next nick is tried once three were refused: the first wait and the longest."""

MIN_NICKLEN = 9
"""Length of a nick that every server accepts (RFC 1459, section 1.2)."""

RETRY_INTERVAL, ISON_INTERVAL, GHOST_DELAY = 300.0, 30.0, 3.0
"""Seconds between attempts to take the nick, between ISON queries on a server without MONITOR, and
that NickServ gets to process a GHOST."""

FORCED_RETRY_FIRST, FORCED_RETRY_MAX = 5.0, 300.0
"""Seconds before we request our nick after we were renamed: the first wait and the longest. Without
backoff, services that deny us the nick and we would rename us back and forth for ever."""

NICKSERV = "NickServ"

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
        tell_nickserv(session, "IDENTIFY", "" if session.is_me(wanted) else wanted)
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
    start_recovery(session)
    # RFC 1459, section 4.2.1: keys match channels by position, so channels with keys go first.
    desired = sorted(session.desired_channels.items(), key=lambda pair: not pair[1])
    at_once = min(session.isupport.targets("JOIN"), MAX_JOINS)
    for begin in range(0, len(desired), at_once):
        some = desired[begin : begin + at_once]
        keys = [",".join(key for _, key in some if key)]
        session.send("JOIN", ",".join(name for name, _ in some), *filter(None, keys))


def on_nick_refused(session: Session, message: Message) -> None:
    """Handle the refusal of a nick: try another one until we are registered, then retry later."""
    if not session.registered:
        _try_next(session, is_invalid=message.command == "432")
    # MONITOR reports when a nick in use (433) is free. The other refusals (432, 437, 438, 447) do
    # not mean that somebody is online under the nick.
    elif not ("MONITOR" in session.isupport.tokens and message.command == "433"):
        _request_later(session, RETRY_INTERVAL, "NICK")


def _try_next(session: Session, is_invalid: bool) -> None:
    """Request the wanted nick with `_`, with `__`, then with random letters, ever more slowly.

    `is_invalid` means that the server does not accept such a nick at all (432); the next one is
    short and has only ASCII letters.
    """
    session.nicks_refused += 1
    wanted, refused = session.settings.nick, session.nicks_refused
    cut = wanted[:MIN_NICKLEN]
    if refused <= 2 and not is_invalid:
        session.send("NICK", wanted + "_" * refused, urgent=True)
    elif refused == 1 and cut != wanted and cut.isascii():
        # It may only have been too long: NICKLEN is not known before 005, after the welcome.
        session.send("NICK", cut, urgent=True)
    else:
        # Keep it short: a server that truncates nicks would cut off the random letters and so find
        # the same nick in use each time.
        plain = "".join(c for c in wanted if c.isascii() and c.isalpha())
        base = (plain[:4] or "bot") if is_invalid else f"{wanted[:5]}_"
        letters = "".join(random.choices(string.ascii_lowercase, k=4))
        delay = (
            min(NICK_RETRY_FIRST * 2 ** min(refused - 3, 10), NICK_RETRY_MAX)
            if refused > 2
            else 0.0
        )
        session.send("NICK", base + letters, urgent=True, delay=delay)


def start_recovery(session: Session) -> None:
    """Begin to recover the nick that we want, if we have another one."""
    nick = _wanted(session)
    if session.is_me(nick):
        return
    session.lost_nick = nick
    if session.settings.nickserv_password and not session.sasl.server_untrusted:
        # GHOST disconnects the holder; it takes services a moment until the nick is free.
        tell_nickserv(session, "GHOST", nick)
        _request_later(session, GHOST_DELAY, "NICK")
    if "MONITOR" in session.isupport.tokens:
        session.send("MONITOR", "+", nick)
    else:
        _poll(session)


def claim_nick(session: Session, settings: NetworkSettings) -> None:
    """Switch to `settings` and request the nick that they name."""
    session.settings = settings
    nick = _wanted(session)
    if not session.is_ready or session.is_me(nick):
        return  # before the end of the MOTD, `start_recovery` requests it then
    if not session.sasl.account:
        tell_nickserv(session, "IDENTIFY", nick)
    session.send("NICK", nick, urgent=True)
    start_recovery(session)


def on_nick_free(session: Session, nick: str) -> None:
    """Request the nick that we want if it is the one that has become free."""
    missed = session.lost_nick
    if missed and session.fold(nick) == session.fold(missed):
        session.send("NICK", missed)


def on_nick_change(session: Session) -> None:
    """Handle a change of our nick: end the recovery if it is the wanted one, else restart it.

    The recovery starts after a pause that grows with each time that we are renamed.
    """
    nick, is_watched = _wanted(session), "MONITOR" in session.isupport.tokens
    if session.is_me(nick):
        if session.lost_nick and is_watched:
            session.send("MONITOR", "-", session.lost_nick)
        session.lost_nick = None
        return
    session.lost_nick = nick
    pause = min(FORCED_RETRY_FIRST * 2**session.nick_losses, FORCED_RETRY_MAX)
    session.nick_losses = min(session.nick_losses + 1, 10)
    _request_later(session, pause, "NICK")
    if is_watched:
        # MONITOR + is answered at once if the nick is free already, and we would request it then.
        # Hence it waits for the pause too.
        _request_later(session, pause + 1, "MONITOR", "+")
    else:
        _request_later(session, pause + ISON_INTERVAL, "ISON")


def _wanted(session: Session) -> str:
    # A server may silently truncate a nick to NICKLEN; that still counts as the wanted nick.
    return session.settings.nick[: session.isupport.nicklen]


def _request_later(session: Session, delay: float, *command: str) -> None:
    """Send `command` with the nick that we want in `delay` seconds, unless we have it by then."""
    if nick := session.lost_nick:
        session.send(*command, nick, delay=delay, unless=lambda: session.lost_nick is None)


@HANDLERS.on("734")
def _list_full(session: Session, _message: Message) -> None:
    _poll(session)


def _poll(session: Session) -> None:
    """Poll for the nick, on a server without MONITOR or whose list is full (734)."""
    _request_later(session, ISON_INTERVAL, "ISON")
    _request_later(session, RETRY_INTERVAL, "NICK")


@HANDLERS.on("731")
def _monitor_offline(session: Session, message: Message) -> None:
    """Handle 731, RPL_MONOFFLINE: the listed nicks are offline."""
    for nick in message.param(-1).split(","):
        on_nick_free(session, nick.partition("!")[0])


@HANDLERS.on("303")
def _ison_reply(session: Session, message: Message) -> None:
    """Handle 303, RPL_ISON: of the nicks that we queried, the listed ones are online."""
    fold, nick = session.fold, session.lost_nick
    if nick and fold(nick) not in map(fold, message.param(-1).split()):
        session.send("NICK", nick)
    _request_later(session, ISON_INTERVAL, "ISON")


def tell_nickserv(session: Session, command: str, account: str = "") -> None:
    """Send `command`, the account and our password to NickServ once a WHOIS has verified it.

    Do nothing without a password, or if SASL found the server to be an impostor.
    """
    # A nick is not an identity: while a network has no services, anybody can take the nick
    # NickServ. So a WHOIS precedes the password, and NickServ is recognised by 313
    # (RPL_WHOISOPERATOR, "is a Network Service"), which a server sends only for services and
    # operators, or by the mask in the settings.
    password, mask = session.settings.nickserv_password, session.settings.nickserv_mask
    if password is None or session.sasl.server_untrusted:
        return

    def refuse(reason: str) -> None:
        log.warning("irc.nickserv_not_told", network=session.network, reason=reason)

    if not session.encrypted and not is_loopback(session.settings.server or ""):
        refuse("not encrypted; set tls = true")
        return
    words = " ".join(filter(None, (command, account, password.get_secret_value())))

    def found(member: Member | None) -> None:
        if member is None:
            return
        whole = f"{member.nick}!{member.user}@{member.host}".lower()
        if fnmatch.fnmatchcase(whole, mask.lower()) if mask else member.service:
            session.send("PRIVMSG", NICKSERV, words, urgent=True)
        else:
            refuse("it is not known as services")

    session.outgoing.append(QueuedMessage(session.whois(NICKSERV, found), urgent=True))
