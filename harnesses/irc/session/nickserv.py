"""Messages to NickServ with our password in them, which go to nobody else.

A nick is not an identity: where services are away, or never were, anybody may be called NickServ.
So the server is asked first who that is. Services are told by 313 (RPL_WHOISOPERATOR, "is a Network
Service"), which only a server and its operators can have said of them, or by the mask that the
settings name. And the password goes over no connection that others can read.
"""

from __future__ import annotations

import fnmatch

import structlog

from harnesses.irc.session.state import ConnectionState, Member, Whois
from terrarium.loopback import is_loopback

NICK = "NickServ"

_log = structlog.get_logger()


def tell(state: ConnectionState, command: str, account: str = "") -> None:
    """Send NickServ `command`, with the account and our password behind it, once the server has
    said that it is services. Does nothing without a password, nor on a connection in clear text."""
    password = state.settings.nickserv_password
    if password is None or state.sasl.betrayed:
        return
    if not state.encrypted and not is_loopback(state.settings.server or ""):
        _log.warning(
            "irc.nickserv_not_told", network=state.network, reason="not encrypted; set tls = true"
        )
        return
    words = " ".join(filter(None, (command, account, password.get_secret_value())))

    def found(member: Member | None) -> None:
        if member and _is_services(state, member):
            state.send("PRIVMSG", NICK, words, urgent=True)
        elif member:
            _log.warning(
                "irc.nickserv_not_told", network=state.network, reason="it is not known as services"
            )

    whois = state.whois.setdefault(state.isupport.fold(NICK), Whois())
    whois.found.append(found)
    if len(whois.found) == 1:
        state.send("WHOIS", NICK, urgent=True)


def _is_services(state: ConnectionState, member: Member) -> bool:
    if mask := state.settings.nickserv_mask:
        whole = f"{member.nick}!{member.user}@{member.host}"
        return fnmatch.fnmatchcase(whole.lower(), mask.lower())
    return member.service
