"""Recovery of the nick that we want.

We request it when its holder quits or is renamed in a shared channel, when MONITOR
(https://ircv3.net/specs/extensions/monitor) or, without that, ISON reports it free, after NickServ
has disconnected its holder (GHOST), and every few minutes where MONITOR cannot tell. If somebody
renames us (an operator, services, a nick collision after a netsplit) we request it again after a
growing pause.
"""

from __future__ import annotations

from harnesses.irc.protocol.message import Message
from harnesses.irc.session import nickserv
from harnesses.irc.session.state import ConnectionState

RETRY_INTERVAL, ISON_INTERVAL, GHOST_DELAY = 300.0, 30.0, 3.0
"""Seconds between attempts to take the nick, between ISON queries on a server without MONITOR, and
that NickServ gets to process a GHOST."""

FORCED_RETRY_FIRST, FORCED_RETRY_MAX = 5.0, 300.0
"""Seconds before we request our nick after we were renamed: the first wait and the longest. Without
backoff, services that deny us the nick and we would rename us back and forth for ever."""


def start_recovery(state: ConnectionState) -> None:
    """Begin to recover the nick that we want, if we have another one."""
    nick = _wanted(state)
    if state.is_me(nick):
        return
    state.lost_nick = nick
    if state.settings.nickserv_password and not state.sasl.server_untrusted:
        # GHOST disconnects the holder; it takes services a moment until the nick is free.
        nickserv.tell(state, "GHOST", nick)
        _send_later(state, GHOST_DELAY, "NICK", nick)
    if "MONITOR" in state.isupport.tokens:
        state.send("MONITOR", "+", nick)
    else:
        poll_for_nick(state)


def claim_nick(state: ConnectionState) -> None:
    """Request the nick that we want, after the settings have changed it."""
    nick = _wanted(state)
    if state.is_me(nick):
        return
    if not state.sasl.account:
        nickserv.tell(state, "IDENTIFY", nick)
    state.send("NICK", nick, urgent=True)
    start_recovery(state)


def on_nick_free(state: ConnectionState, nick: str) -> None:
    """Request the nick that we want if it is the one that has become free."""
    missed = state.lost_nick
    if missed and state.isupport.fold(nick) == state.isupport.fold(missed):
        state.send("NICK", missed)


def on_monitor_offline(state: ConnectionState, message: Message) -> None:
    """Handle 731, RPL_MONOFFLINE: the listed nicks are offline."""
    for nick in message.param(-1).split(","):
        on_nick_free(state, nick.partition("!")[0])


def on_ison_reply(state: ConnectionState, message: Message) -> None:
    """Handle 303, RPL_ISON: of the nicks that we queried, the listed ones are online."""
    there = {state.isupport.fold(nick) for nick in message.param(-1).split()}
    if nick := state.lost_nick:
        if state.isupport.fold(nick) not in there:
            on_nick_free(state, nick)
        _send_later(state, ISON_INTERVAL, "ISON", nick)


def poll_for_nick(state: ConnectionState) -> None:
    """Poll for the nick, on a server without MONITOR or whose list is full (734)."""
    if nick := state.lost_nick:
        _send_later(state, ISON_INTERVAL, "ISON", nick)
        _send_later(state, RETRY_INTERVAL, "NICK", nick)


def on_nick_change(state: ConnectionState) -> None:
    """Handle a change of our nick: end the recovery if it is the wanted one, else restart it.

    The recovery starts after a pause that grows with each time that we are renamed.
    """
    nick, is_watched = _wanted(state), "MONITOR" in state.isupport.tokens
    if state.is_me(nick):
        if state.lost_nick and is_watched:
            state.send("MONITOR", "-", state.lost_nick)
        state.lost_nick = None
        return
    state.lost_nick = nick
    pause = min(FORCED_RETRY_FIRST * 2**state.nick_losses, FORCED_RETRY_MAX)
    state.nick_losses = min(state.nick_losses + 1, 10)
    _send_later(state, pause, "NICK", nick)
    if is_watched:
        # MONITOR + is answered at once if the nick is free already, and we would request it then.
        # Hence it waits for the pause too.
        state.send_later(pause + 1, lambda: state.lost_nick is None, "MONITOR", "+", nick)
    else:
        _send_later(state, pause + ISON_INTERVAL, "ISON", nick)


def on_nick_refused(state: ConnectionState, message: Message) -> None:
    """Retry a refused nick later, unless MONITOR will report when it is free.

    It does so only for a nick in use (433). The other refusals (432, 437, 438, 447) do not mean
    that somebody is online under the nick.
    """
    nick = state.lost_nick
    if nick and not ("MONITOR" in state.isupport.tokens and message.command == "433"):
        _send_later(state, RETRY_INTERVAL, "NICK", nick)


def _wanted(state: ConnectionState) -> str:
    # A server may silently truncate a nick to NICKLEN; that still counts as the wanted nick.
    return state.settings.nick[: state.isupport.nicklen if state.isupport.tells_nicklen else None]


def _send_later(state: ConnectionState, delay: float, command: str, nick: str) -> None:
    state.send_later(delay, lambda: state.lost_nick is None, command, nick)
