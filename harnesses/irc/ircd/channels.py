"""Coming, going, and keeping order in channels."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from harnesses.irc.ircd.client import Client
from harnesses.irc.ircd.room import SYMBOLS, Room
from harnesses.irc.ircd.table import CHANNELLEN, command
from harnesses.irc.protocol.message import Message

if TYPE_CHECKING:
    from harnesses.irc.ircd.server import Server

_CHANNEL = re.compile(r"#[^\s,\x07]+")
_FLAGS = "imnt"


@command("JOIN", needs=1)
def _join(server: Server, client: Client, message: Message) -> None:
    for name in message.param(0).split(","):
        if not _CHANNEL.fullmatch(name) or len(name) > CHANNELLEN:
            client.reply("403", name, "No such channel")
            continue
        room = server.room(name, create=True)
        if not room or client in room.members:
            continue
        room.members[client] = set() if room.members else {"o"}
        room.send(Message("JOIN", (room.name,), client.source))
        if room.topic:
            _show_topic(client, room)
        _show_names(client, room)


@command("PART", needs=1)
def _part(server: Server, client: Client, message: Message) -> None:
    for name in message.param(0).split(","):
        if room := _own_room(server, client, name):
            room.send(Message("PART", (room.name, *message.params[1:2]), client.source))
            server.leave(client, room)


@command("KICK", needs=2)
def _kick(server: Server, client: Client, message: Message) -> None:
    room = _own_room(server, client, message.param(0))
    if not room or not _may(client, room):
        return
    for nick in message.param(1).split(","):
        target = server.client(nick)
        if target not in room.members:
            client.reply("441", nick, room.name, "They aren't on that channel")
        else:
            reason = message.param(2) or client.nick
            room.send(Message("KICK", (room.name, target.nick, reason), client.source))
            server.leave(target, room)


@command("TOPIC", needs=1)
def _topic(server: Server, client: Client, message: Message) -> None:
    room = _own_room(server, client, message.param(0))
    if room and len(message.params) == 1:
        _show_topic(client, room)
    elif room and ("t" not in room.modes or _may(client, room)):
        room.topic, room.topic_by, room.topic_at = message.param(1), client.nick, int(time.time())
        room.send(Message("TOPIC", (room.name, room.topic), client.source))


@command("NAMES")
def _names(server: Server, client: Client, message: Message) -> None:
    room = server.room(message.param(0))
    if room:
        _show_names(client, room)
    else:
        client.reply("366", message.param(0), "End of NAMES list")


@command("LIST")
def _list(server: Server, client: Client, message: Message) -> None:
    wanted = [server.room(name) for name in message.param(0).split(",")]
    client.reply("321", "Channel", "Users  Name")
    for room in server.rooms:
        if room in wanted or not message.param(0).startswith("#"):
            client.reply("322", room.name, str(len(room.members)), room.topic)
    client.reply("323", "End of LIST")


@command("MODE", needs=1)
def _mode(server: Server, client: Client, message: Message) -> None:
    target, modes = message.param(0), message.param(1)
    if not target.startswith("#"):
        _user_mode(server, client, target, modes)
    elif not (room := server.room(target)):
        client.reply("403", target, "No such channel")
    elif not modes:
        client.reply("324", room.name, "+" + "".join(sorted(room.modes)))
        client.reply("329", room.name, str(room.created))
    elif modes.lstrip("+") == "b":
        client.reply("368", room.name, "End of channel ban list")
    elif _may(client, room):
        _change_modes(server, client, room, modes, list(message.params[2:]))


def _change_modes(
    server: Server, client: Client, room: Room, modes: str, arguments: list[str]
) -> None:
    sign, changed = "+", ""
    names: list[str] = []
    for mode in modes:
        if mode in "+-":
            sign = mode
        elif mode in SYMBOLS and arguments:
            target = server.client(arguments.pop(0))
            if target in room.members:
                _switch(room.members[target], mode, sign)
                changed, names = changed + sign + mode, [*names, target.nick]
        elif mode in _FLAGS:
            _switch(room.modes, mode, sign)
            changed += sign + mode
        else:
            client.reply("472", mode, "is unknown mode char to me")
    if changed:
        room.send(Message("MODE", (room.name, changed, *names), client.source))


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


def _own_room(server: Server, client: Client, name: str) -> Room | None:
    room = server.room(name)
    if not room:
        client.reply("403", name, "No such channel")
    elif client not in room.members:
        client.reply("442", room.name, "You're not on that channel")
    else:
        return room
    return None


def _may(client: Client, room: Room) -> bool:
    if not room.is_op(client):
        client.reply("482", room.name, "You're not channel operator")
    return room.is_op(client)


def _show_topic(client: Client, room: Room) -> None:
    if not room.topic:
        client.reply("331", room.name, "No topic is set")
        return
    client.reply("332", room.name, room.topic)
    client.reply("333", room.name, room.topic_by, str(room.topic_at))


def _show_names(client: Client, room: Room) -> None:
    names = [room.shown(member) + member.nick for member in room.members]
    for start in range(0, len(names), 12):  # twelve of the longest names fit on a line
        client.reply("353", "=", room.name, " ".join(names[start : start + 12]))
    client.reply("366", room.name, "End of NAMES list")
