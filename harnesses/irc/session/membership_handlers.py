"""Handlers of JOIN, PART, KICK, QUIT, NICK and the numerics about members."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.message import Message, Source
from harnesses.irc.session import channel_joins, nick_recovery
from harnesses.irc.session.state import ConnectionState, Handler, Member, tagged_time

log = structlog.get_logger()


def _join(state: ConnectionState, message: Message) -> list[IrcEvent]:
    source, name = message.source or Source(""), message.param(0)
    if state.is_me(source.nick):
        if channel_joins.is_uninvited(state, name):
            log.warning("irc.uninvited", network=state.network, channel=name)
            state.uninvited.add(state.isupport.fold(name))
            state.send("PART", name)
            return []
        state.roster.enter(name, tagged_time(message))
        state.refusals.pop(state.isupport.fold(name), None)
        state.uninvited.discard(state.isupport.fold(name))
        state.source = source if source.host else state.source
    # https://ircv3.net/specs/extensions/extended-join adds the account as second parameter, "*" for
    # none.
    account = message.param(1).removeprefix("*") or message.tags.get("account") or None
    state.roster.add(name, Member(source.nick, source.user, source.host, account))
    _ask_who(state, name, source.nick)
    if state.is_attaching and state.is_me(source.nick):
        return []  # the bouncer has been there all along: for others we have not just joined
    return [state.event("JOIN", message, name, name)]


def _ask_who(state: ConnectionState, name: str, nick: str) -> None:
    """Send WHO to learn which members are bots: all of them on our own JOIN, else the new one.

    With message-tags a newcomer's messages carry the bot tag, so no WHO is needed.
    """
    if not state.isupport.bot:
        return
    if state.is_me(nick):
        state.send("WHO", name, idle=True)
    elif "message-tags" not in state.capabilities.enabled:
        state.send("WHO", nick, idle=True)


def _who_reply(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Handle 352, RPL_WHOREPLY: `channel user host server nick flags :hops real name`.

    The flags of a bot contain the letter of BOT (https://ircv3.net/specs/extensions/bot-mode).
    """
    letter = state.isupport.bot
    bot = letter != "" and letter in message.param(6)
    nick = message.param(5)
    for channel in state.roster.shared_channels(nick):
        member = channel.members[state.isupport.fold(nick)]
        member.user, member.host, member.bot = message.param(2), message.param(3), bot
    return []


def _whois_user(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Handle 311, RPL_WHOISUSER: `nick user host * :real name`."""
    if whois := state.whois.get(state.isupport.fold(message.param(1))):
        whois.member = Member(message.param(1), message.param(2), message.param(3))
    return []


def _whois_account(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Handle 330, RPL_WHOISACCOUNT: `nick account :is logged in as`."""
    whois = state.whois.get(state.isupport.fold(message.param(1)))
    if whois and whois.member:
        whois.member.account = message.param(2) or None
    return []


def _whois_operator(state: ConnectionState, message: Message) -> list[IrcEvent]:
    whois = state.whois.get(state.isupport.fold(message.param(1)))
    if whois and whois.member:
        whois.member.service = True
    return []


def _whois_end(state: ConnectionState, message: Message) -> list[IrcEvent]:
    state.end_whois(state.isupport.fold(message.param(1)))
    return []


def _try_again(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Handle 263, RPL_TRYAGAIN: `command :reason`; the server has dropped the command."""
    # It does not say whose WHOIS it was. A server answers in order, so it was the oldest.
    if message.param(1).upper() == "WHOIS" and state.whois:
        state.end_whois(min(state.whois, key=lambda nick: state.whois[nick].asked))
    return []


def _part(state: ConnectionState, message: Message) -> list[IrcEvent]:
    name = message.param(0)
    event = state.event("PART", message, name, name, message.param(1))
    _remove_member(state, name, event.nick)
    return [event]


def _kick(state: ConnectionState, message: Message) -> list[IrcEvent]:
    name, nick = message.param(0), message.param(1)
    event = state.event("KICK", message, name, nick, message.param(2))
    _remove_member(state, name, nick)
    return [event]


def _quit(state: ConnectionState, message: Message) -> list[IrcEvent]:
    # QUIT and NICK name no channel. Their events must be created before the roster is updated, as
    # it knows which channels are affected.
    events = _everywhere(state, "QUIT", message, message.param(0))
    for event in events:
        state.roster.remove(event.target, event.nick)
    nick_recovery.on_nick_free(state, _nick_of(message))
    return events


def _nick(state: ConnectionState, message: Message) -> list[IrcEvent]:
    old, new = _nick_of(message), message.param(0)
    events = _everywhere(state, "NICK", message, new)
    state.roster.rename(old, new)
    if state.is_me(old):  # also when an operator or services renamed us
        state.source = Source(new, state.source.user, state.source.host)
        nick_recovery.on_nick_change(state)
    elif state.isupport.fold(old) != state.isupport.fold(new):
        nick_recovery.on_nick_free(state, old)
    return events


def _account(state: ConnectionState, message: Message) -> list[IrcEvent]:
    for channel in state.roster.shared_channels(_nick_of(message)):
        member = channel.members[state.isupport.fold(_nick_of(message))]
        member.account = message.param(0).removeprefix("*") or None
    return []


def _chghost(state: ConnectionState, message: Message) -> list[IrcEvent]:
    nick, user, host = _nick_of(message), message.param(0), message.param(1)
    if state.is_me(nick):
        state.source = Source(state.source.nick, user, host)
    for channel in state.roster.shared_channels(nick):
        member = channel.members[state.isupport.fold(nick)]
        member.user, member.host = user, host
    return []


def _own_host(state: ConnectionState, message: Message) -> list[IrcEvent]:
    # 396, RPL_VISIBLEHOST: some servers send `user@host`, most only the host.
    user, _, host = message.param(1).rpartition("@")
    state.source = Source(state.source.nick, user or state.source.user, host)
    return []


def _monitor_offline(state: ConnectionState, message: Message) -> list[IrcEvent]:
    nick_recovery.on_monitor_offline(state, message)
    return []


def _ison_reply(state: ConnectionState, message: Message) -> list[IrcEvent]:
    nick_recovery.on_ison_reply(state, message)
    return []


def _monitor_full(state: ConnectionState, message: Message) -> list[IrcEvent]:
    nick_recovery.poll_for_nick(state)
    return []


def _names(state: ConnectionState, message: Message) -> list[IrcEvent]:
    # Indexed from the end, as some servers omit the channel's symbol (`=`, `*` or `@`).
    state.roster.add_names(message.param(-2), message.param(-1))
    return []


def _names_end(state: ConnectionState, message: Message) -> list[IrcEvent]:
    state.roster.end_names(message.param(1))
    return []


def _remove_member(state: ConnectionState, name: str, nick: str) -> None:
    if state.is_me(nick):
        state.roster.leave(name)
        # After our own PART the channel is no longer desired, so this queues nothing.
        state.join(name, state.settings.rejoin_after)
    else:
        state.roster.remove(name, nick)


def _everywhere(
    state: ConnectionState, kind: EventType, message: Message, text: str
) -> list[IrcEvent]:
    names = [channel.name for channel in state.roster.shared_channels(_nick_of(message))]
    return [state.event(kind, message, name, name, text) for name in names]


def _nick_of(message: Message) -> str:
    return message.source.nick if message.source else ""


HANDLERS: Mapping[str, Handler] = {
    "JOIN": _join,
    "PART": _part,
    "KICK": _kick,
    "QUIT": _quit,
    "NICK": _nick,
    "ACCOUNT": _account,
    "CHGHOST": _chghost,
    "396": _own_host,
    "731": _monitor_offline,
    "734": _monitor_full,
    "303": _ison_reply,
    "352": _who_reply,
    "311": _whois_user,
    "313": _whois_operator,
    "330": _whois_account,
    "318": _whois_end,
    "263": _try_again,
    "353": _names,
    "366": _names_end,
}
