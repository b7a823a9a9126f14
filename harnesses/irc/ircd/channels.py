"""Channel commands: JOIN, PART, KICK, TOPIC, NAMES, LIST, MODE."""

from __future__ import annotations

import re
import time

from harnesses.irc.ircd.server import CHANNELLEN, SYMBOLS, Channel, Client, Server, command
from harnesses.irc.protocol.message import Message

_CHANNEL = re.compile(r"#[^\s,\x07]+")
_FLAGS = "imnt"


@command("JOIN", needs=1)
def _join(server: Server, client: Client, message: Message) -> None:
    for name in message.param(0).split(","):
        if not _CHANNEL.fullmatch(name) or len(name) > CHANNELLEN:
            client.reply("403", name, "No such channel")
            continue
        channel = server.find_channel(name, create=True)
        if not channel or client in channel.members:
            continue
        channel.members[client] = set() if channel.members else {"o"}
        channel.send(Message("JOIN", (channel.name,), client.source))
        if channel.topic:
            _show_topic(client, channel)
        _show_names(client, channel)


@command("PART", needs=1)
def _part(server: Server, client: Client, message: Message) -> None:
    for name in message.param(0).split(","):
        if channel := _joined_channel(server, client, name):
            channel.send(Message("PART", (channel.name, *message.params[1:2]), client.source))
            server.leave(client, channel)


@command("KICK", needs=2)
def _kick(server: Server, client: Client, message: Message) -> None:
    channel = _joined_channel(server, client, message.param(0))
    if not channel or not _is_allowed(client, channel):
        return
    for nick in message.param(1).split(","):
        target = server.client(nick)
        if target not in channel.members:
            client.reply("441", nick, channel.name, "They aren't on that channel")
        else:
            reason = message.param(2) or client.nick
            channel.send(Message("KICK", (channel.name, target.nick, reason), client.source))
            server.leave(target, channel)


@command("TOPIC", needs=1)
def _topic(server: Server, client: Client, message: Message) -> None:
    channel = _joined_channel(server, client, message.param(0))
    if channel and len(message.params) == 1:
        _show_topic(client, channel)
    elif channel and ("t" not in channel.modes or _is_allowed(client, channel)):
        channel.topic, channel.topic_by, channel.topic_at = (
            message.param(1),
            client.nick,
            int(time.time()),
        )
        channel.send(Message("TOPIC", (channel.name, channel.topic), client.source))


@command("NAMES")
def _names(server: Server, client: Client, message: Message) -> None:
    channel = server.find_channel(message.param(0))
    if channel:
        _show_names(client, channel)
    else:
        client.reply("366", message.param(0), "End of NAMES list")


@command("LIST")
def _list(server: Server, client: Client, message: Message) -> None:
    wanted = [server.find_channel(name) for name in message.param(0).split(",")]
    client.reply("321", "Channel", "Users  Name")
    for channel in server.channel_list:
        if channel in wanted or not message.param(0).startswith("#"):
            client.reply("322", channel.name, str(len(channel.members)), channel.topic)
    client.reply("323", "End of LIST")


@command("MODE", needs=1)
def _mode(server: Server, client: Client, message: Message) -> None:
    target, modes = message.param(0), message.param(1)
    if not target.startswith("#"):
        _user_mode(server, client, target, modes)
    elif not (channel := server.find_channel(target)):
        client.reply("403", target, "No such channel")
    elif not modes:
        client.reply("324", channel.name, "+" + "".join(sorted(channel.modes)))
        client.reply("329", channel.name, str(channel.created))
    elif modes.lstrip("+") == "b":  # some clients query the ban list on JOIN; there are no bans
        client.reply("368", channel.name, "End of channel ban list")
    elif _is_allowed(client, channel):
        _change_modes(server, client, channel, modes, list(message.params[2:]))


def _change_modes(
    server: Server, client: Client, channel: Channel, modes: str, arguments: list[str]
) -> None:
    sign, changed = "+", ""
    names: list[str] = []
    for mode in modes:
        if mode in "+-":
            sign = mode
        elif mode in SYMBOLS and arguments:
            target = server.client(arguments.pop(0))
            if target in channel.members:
                _switch(channel.members[target], mode, sign)
                changed, names = changed + sign + mode, [*names, target.nick]
        elif mode in _FLAGS:
            _switch(channel.modes, mode, sign)
            changed += sign + mode
        else:
            client.reply("472", mode, "is unknown mode char to me")
    if changed:
        channel.send(Message("MODE", (channel.name, changed, *names), client.source))


def _switch(modes: set[str], mode: str, sign: str) -> None:
    if sign == "+":
        modes.add(mode)
    else:
        modes.discard(mode)


def _user_mode(server: Server, client: Client, target: str, modes: str) -> None:
    if server.client(target) is not client:
        client.reply("502", "Can't change mode for other users")
    elif not modes:
        client.reply("221", "+" + "".join(sorted(client.modes)))
    else:
        sign = "-" if modes.startswith("-") else "+"
        known = [mode for mode in modes if mode in "iw"]
        for mode in known:
            _switch(client.modes, mode, sign)
        if known:
            client.send(Message("MODE", (client.nick, sign + "".join(known)), client.source))


def _joined_channel(server: Server, client: Client, name: str) -> Channel | None:
    channel = server.find_channel(name)
    if not channel:
        client.reply("403", name, "No such channel")
    elif client not in channel.members:
        client.reply("442", channel.name, "You're not on that channel")
    else:
        return channel
    return None


def _is_allowed(client: Client, channel: Channel) -> bool:
    if not channel.is_op(client):
        client.reply("482", channel.name, "You're not channel operator")
    return channel.is_op(client)


def _show_topic(client: Client, channel: Channel) -> None:
    if not channel.topic:
        client.reply("331", channel.name, "No topic is set")
        return
    client.reply("332", channel.name, channel.topic)
    client.reply("333", channel.name, channel.topic_by, str(channel.topic_at))


def _show_names(client: Client, channel: Channel) -> None:
    names = [channel.symbol(member) + member.nick for member in channel.members]
    for start in range(0, len(names), 12):  # 12 names of NICKLEN fit within 512 bytes
        client.reply("353", "=", channel.name, " ".join(names[start : start + 12]))
    client.reply("366", channel.name, "End of NAMES list")
