"""Connection commands: CAP, PASS, USER, NICK, PING, PONG, QUIT."""

from __future__ import annotations

import re

from harnesses.irc.ircd.server import NICKLEN, Client, Server, command
from harnesses.irc.protocol.message import Message

_NICK = re.compile(r"[A-Za-z\[\]\\`_^{|}][A-Za-z0-9\[\]\\`_^{|}-]*")


@command("CAP", needs=1, registered=False)
def _cap(server: Server, client: Client, message: Message) -> None:
    kind = message.param(0).upper()
    # https://ircv3.net/specs/extensions/capability-negotiation: LS and REQ suspend the registration
    # until CAP END. This server has no capabilities.
    if kind in ("LS", "REQ") and not client.registered:
        client.negotiating = True
    if kind in ("LS", "LIST"):
        client.send(Message("CAP", (client.nick or "*", kind, ""), server.source))
    elif kind == "REQ":
        client.send(Message("CAP", (client.nick or "*", "NAK", message.param(1)), server.source))
    elif kind == "END":
        client.negotiating = False
        server.welcome(client)


@command("PASS", registered=False)
def _pass(server: Server, client: Client, message: Message) -> None:
    """Accept any password: this server has none."""


@command("USER", needs=4, registered=False)
def _user(server: Server, client: Client, message: Message) -> None:
    if client.registered:
        client.reply("462", "You may not reregister")
        return
    user = re.sub(r"[^A-Za-z0-9._-]", "", message.param(0))[:10]
    client.data.update(username=user or "user", realname=message.param(3))
    server.welcome(client)


@command("NICK", registered=False)
def _nick(server: Server, client: Client, message: Message) -> None:
    nick = message.param(0)
    if not nick:
        client.reply("431", "No nickname given")
    elif not _NICK.fullmatch(nick) or len(nick) > NICKLEN:
        client.reply("432", nick, "Erroneous nickname")
    elif server.client(nick) not in (None, client):
        client.reply("433", nick, "Nickname is already in use")
    else:
        server.rename(client, nick)


@command("PING", needs=1, registered=False)
def _ping(server: Server, client: Client, message: Message) -> None:
    client.send(Message("PONG", (server.source.nick, message.param(0)), server.source))


@command("PONG", registered=False)
def _pong(server: Server, client: Client, message: Message) -> None:
    """Do nothing: receiving any line has already reset the client's idle time."""


@command("QUIT", registered=False)
def _quit(server: Server, client: Client, message: Message) -> None:
    reason = f"Quit: {message.param(0)}" if message.param(0) else "Quit"
    # irc3d runs the handlers of earlier lines by call_soon; call_soon runs this after them.
    server.loop.call_soon(_leave, server, client, reason)


def _leave(server: Server, client: Client, reason: str) -> None:
    server.disconnect(client, reason)
    client.end("Quit")
