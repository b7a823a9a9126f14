"""Getting back the nick we want from whoever has it.

We ask when its holder leaves or is renamed, when MONITOR
(https://ircv3.net/specs/extensions/monitor) or, without that, ISON says that it is free, after
NickServ has sent its holder away, and every few minutes whatever is said. Whoever changes our nick
against our will, such as an operator, services or the end of a netsplit, only delays us.
"""

from __future__ import annotations

from harnesses.irc.protocol.message import Message
from harnesses.irc.session import nickserv
from harnesses.irc.session.state import ConnectionState

ASK_EVERY, LOOK_EVERY, GHOST_TAKES = 300.0, 30.0, 3.0
"""Seconds between attempts to take the nick, between questions by ISON whether it is free on a
server without MONITOR, and for NickServ to do its work."""

FORCED_FIRST, FORCED_LONGEST = 5.0, 300.0
"""Seconds until we ask for our nick again after somebody has taken it from us, and the longest such
wait: services that do not let us have it would otherwise rename us for ever."""


def start_recovery(state: ConnectionState) -> None:
    """Watch for the nick we want, if we were welcomed by another one."""
    nick = _wanted(state)
    if state.is_me(nick):
        return
    state.lost_nick = nick
    if state.settings.nickserv_password and not state.sasl.betrayed:
        # GHOST ends the holder's connection; services take a moment before the nick is free.
        nickserv.tell(state, "GHOST", nick)
        _send_later(state, GHOST_TAKES, "NICK", nick)
    if "MONITOR" in state.isupport.tokens:
        state.send("MONITOR", "+", nick)
    else:
        on_monitor_full(state)


def claim_nick(state: ConnectionState) -> None:
    """Ask for the nick we want, which is another one since a moment ago."""
    nick = _wanted(state)
    if state.is_me(nick):
        return
    if not state.sasl.account:
        nickserv.tell(state, "IDENTIFY", nick)
    state.send("NICK", nick, urgent=True)
    start_recovery(state)


def on_nick_free(state: ConnectionState, nick: str) -> None:
    """Take the nick we want when it is the one that has become free."""
    missed = state.lost_nick
    if missed and state.isupport.fold(nick) == state.isupport.fold(missed):
        state.send("NICK", missed)


def on_offline(state: ConnectionState, message: Message) -> None:
    """Handle 731 (MONITOR): these, of the nicks we watch, are offline."""
    for nick in message.param(-1).split(","):
        on_nick_free(state, nick.partition("!")[0])


def on_online(state: ConnectionState, message: Message) -> None:
    """Handle 303 (ISON): these, of the nicks we asked for, are there."""
    there = {state.isupport.fold(nick) for nick in message.param(-1).split()}
    if nick := state.lost_nick:
        if state.isupport.fold(nick) not in there:
            on_nick_free(state, nick)
        _send_later(state, LOOK_EVERY, "ISON", nick)


def on_monitor_full(state: ConnectionState) -> None:
    """Ask now and then, as the server does not watch the nick for us (734, or no MONITOR)."""
    if nick := state.lost_nick:
        _send_later(state, LOOK_EVERY, "ISON", nick)
        _send_later(state, ASK_EVERY, "NICK", nick)


def on_nick_change(state: ConnectionState) -> None:
    """Handle a change of our nick: we have the wanted one, or somebody wants us called otherwise.

    Then we wait, each time longer, and ask for ours again.
    """
    nick, is_watched = _wanted(state), "MONITOR" in state.isupport.tokens
    if state.is_me(nick):
        if state.lost_nick and is_watched:
            state.send("MONITOR", "-", state.lost_nick)
        state.lost_nick = None
        return
    state.lost_nick = nick
    pause = min(FORCED_FIRST * 2**state.nick_losses, FORCED_LONGEST)
    state.nick_losses = min(state.nick_losses + 1, 10)
    _send_later(state, pause, "NICK", nick)
    if is_watched:  # told at once when it is free already; that must not shorten the pause
        state.send_later(pause + 1, lambda: state.lost_nick is None, "MONITOR", "+", nick)
    else:
        _send_later(state, pause + LOOK_EVERY, "ISON", nick)


def on_nick_in_use(state: ConnectionState, message: Message) -> None:
    """Ask again later for a nick that is refused, where MONITOR cannot tell when it is free.

    MONITOR knows nothing of a nick that is barred (432, 437, 438, 447), only of one in use.
    """
    nick = state.lost_nick
    if nick and not ("MONITOR" in state.isupport.tokens and message.command == "433"):
        _send_later(state, ASK_EVERY, "NICK", nick)


def _wanted(state: ConnectionState) -> str:
    # A nick longer than NICKLEN may be cut by the server without a word; that is no other nick.
    return state.settings.nick[: state.isupport.nicklen if state.isupport.tells_nicklen else None]


def _send_later(state: ConnectionState, delay: float, command: str, nick: str) -> None:
    state.send_later(delay, lambda: state.lost_nick is None, command, nick)
