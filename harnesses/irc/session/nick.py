"""Our nick: choosing one during the registration, and recovery of the one that we want.

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

import structlog

from harnesses.irc.protocol.message import Message
from harnesses.irc.session.session import Handlers, Member, QueuedMessage, Session
from harnesses.irc.settings import NetworkSettings
from terrarium.loopback import is_loopback

log = structlog.get_logger()

RETRY_FIRST, RETRY_MAX = 2.0, 60.0
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


def on_refused(session: Session, message: Message) -> None:
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
        delay = min(RETRY_FIRST * 2 ** min(refused - 3, 10), RETRY_MAX) if refused > 2 else 0.0
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
