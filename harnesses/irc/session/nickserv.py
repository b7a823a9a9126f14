"""Messages to NickServ that contain our password.

A nick is not an identity: while a network has no services, anybody can take the nick NickServ. So
a WHOIS precedes the password. NickServ is recognised by 313 (RPL_WHOISOPERATOR, "is a Network
Service"), which a server sends only for services and operators, or by the mask in the settings. The
password is sent over an encrypted connection or to this machine only.
"""

from __future__ import annotations

import fnmatch

import structlog

from harnesses.irc.session.state import ConnectionState, Member
from terrarium.loopback import is_loopback

NICK = "NickServ"

_log = structlog.get_logger()


def tell(state: ConnectionState, command: str, account: str = "") -> None:
    """Send `command`, the account and our password to NickServ once a WHOIS has verified it.

    Do nothing without a password, on an unencrypted connection to another machine, or if SASL found
    the server to be an impostor.
    """
    password = state.settings.nickserv_password
    if password is None or state.sasl.server_untrusted:
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

    if state.add_whois(NICK, found):
        state.send("WHOIS", NICK, urgent=True)


def _is_services(state: ConnectionState, member: Member) -> bool:
    if mask := state.settings.nickserv_mask:
        whole = f"{member.nick}!{member.user}@{member.host}"
        return fnmatch.fnmatchcase(whole.lower(), mask.lower())
    return member.service
