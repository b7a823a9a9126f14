"""Getting back the nick we want from whoever has it.

We ask when its holder leaves or is renamed, when MONITOR says that it is free
(https://ircv3.net/specs/extensions/monitor), after NickServ has sent its holder away, and every
few minutes where nothing else would tell us.
"""

from __future__ import annotations

from harnesses.irc.protocol.message import Message
from harnesses.irc.session.state import ConnectionState

ASK_EVERY, GHOST_TAKES = 300.0, 3.0
"""Seconds between attempts on a server without MONITOR, and for NickServ to do its work."""


def start_recovery(state: ConnectionState) -> None:
    """Watch for the nick we want, if we were welcomed by another one."""
    # A nick longer than NICKLEN may be cut by the server without a word; that is no other nick.
    cut = state.isupport.nicklen if "NICKLEN" in state.isupport.tokens else None
    nick = state.settings.nick[:cut]
    if state.is_me(nick):
        return
    state.lost_nick = nick
    if (password := state.settings.nickserv_password) and not state.sasl.betrayed:
        # GHOST ends the holder's connection; services take a moment before the nick is free.
        ghost = f"GHOST {nick} {password.get_secret_value()}"
        state.send("PRIVMSG", "NickServ", ghost, urgent=True)
        _ask(state, GHOST_TAKES)
    if "MONITOR" in state.isupport.tokens:
        state.send("MONITOR", "+", nick)
    else:
        _ask(state, ASK_EVERY)


def on_nick_free(state: ConnectionState, nick: str) -> None:
    """Take the nick we want when it is the one that has become free."""
    missed = state.lost_nick
    if missed and state.isupport.fold(nick) == state.isupport.fold(missed):
        state.send("NICK", missed)


def on_offline(state: ConnectionState, message: Message) -> None:
    """Handle 731 (MONITOR): these, of the nicks we watch, are offline."""
    for nick in message.param(-1).split(","):
        on_nick_free(state, nick.partition("!")[0])


def on_nick_change(state: ConnectionState) -> None:
    """Handle a change of our nick: we have the wanted one, or somebody wants us called so."""
    if state.lost_nick and "MONITOR" in state.isupport.tokens:
        state.send("MONITOR", "-", state.lost_nick)
    state.lost_nick = None


def on_nick_in_use(state: ConnectionState) -> None:
    """Ask again later for a nick that is still taken, where MONITOR cannot tell when it is free."""
    if state.lost_nick and "MONITOR" not in state.isupport.tokens:
        _ask(state, ASK_EVERY)


def _ask(state: ConnectionState, delay: float) -> None:
    if nick := state.lost_nick:
        state.send_later(delay, lambda: state.lost_nick is None, "NICK", nick)
