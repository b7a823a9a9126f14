"""The server itself: who is connected, and which channels there are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from harnesses.irc.ircd.channel import Channel
from harnesses.irc.ircd.client import Client
from harnesses.irc.ircd.command_table import CHANNELLEN, COMMANDS, NICKLEN, TARGETS
from harnesses.irc.protocol.casemap import casemap
from harnesses.irc.protocol.message import Message, Source, parse, strip_tags
from harnesses.irc.transport.irc3_compat import LOGGING, ServerCommands, irc3d

NAME = "terrarium.local"

ISUPPORT = (
    f"CASEMAPPING=ascii CHANMODES=b,,,imnt CHANNELLEN={CHANNELLEN} CHANTYPES=# LINELEN=512 "
    f"MAXTARGETS={TARGETS} NETWORK=Terrarium NICKLEN={NICKLEN} PREFIX=(ov)@+ USERLEN=10"
)
MOTD = ("Terrarium's own server.", "Join #terrarium and type .help")

_fold = casemap("ascii")


class _Commands(ServerCommands):  # type: ignore[misc]
    """irc3d's commands, of which ours have gone before."""

    def on_command(self, cmd: str, **kwargs: Any) -> None:
        if cmd.upper() not in COMMANDS:
            super().on_command(cmd, **kwargs)


class Server(irc3d.IrcServer):  # type: ignore[misc]
    """The nicks and channels of this process, which is the whole network."""

    logging_config = LOGGING

    def __init__(self, includes: Iterable[str] = ()) -> None:
        self._nicks: dict[str, Client] = {}
        self._rooms: dict[str, Channel] = {}
        self.source = Source(NAME)
        super().__init__(loop=asyncio.get_running_loop(), servername=NAME)
        self.registry.includes.update(("irc3d.plugins.core", "irc3d.plugins.userlist"))
        self.registry.plugins["irc3d.plugins.command.ServerCommands"] = _Commands(self)
        self.include("irc3d.plugins.command", *includes)

    @property
    def channel_list(self) -> list[Channel]:
        """The channels."""
        return list(self._rooms.values())

    def client(self, nick: str) -> Client | None:
        """Who has `nick`."""
        return self._nicks.get(_fold(nick))

    def find_channel(self, name: str, create: bool = False) -> Channel | None:
        """The channel `name`."""
        if create and _fold(name) not in self._rooms:
            self._rooms[_fold(name)] = Channel(name, int(time.time()))
        return self._rooms.get(_fold(name))

    def channels_of(self, client: Client) -> list[Channel]:
        """The channels that `client` is in."""
        return [channel for channel in self._rooms.values() if client in channel.members]

    def on_line(self, client: Client, line: str) -> None:
        """Take a line of a client."""
        if not (message := parse(line)):
            return
        if not client.registered and message.command in ("GET", "HEAD", "POST", "PUT"):
            client.end("This is not a web server")  # a web page tries to speak for its reader
            return
        command = COMMANDS.get(message.command)
        if command and command.registered and not client.registered:
            client.reply("451", "You have not registered")
        elif command and len([p for p in message.params if p]) < command.needs:
            client.reply("461", message.command, "Not enough parameters")
        elif command:
            command.run(self, client, message)
        self.dispatch(strip_tags(line), client=client)

    def welcome(self, client: Client) -> None:
        """Let `client` in, when it has said all it must."""
        complete = "nick" in client.data and "username" in client.data
        if not complete or client.registered or client.negotiating:
            return
        client.data["signon"] = int(time.time())
        client.nick = client.data["nick"]  # sets the mask that plugins of irc3d read
        client.reply("001", f"Welcome to Terrarium {client.source}")
        client.reply("002", f"Your host is {NAME}, running irc3d {self.config.version}")
        client.reply("003", "This server keeps nothing")
        client.reply("004", NAME, f"irc3d-{self.config.version}", "iw", "imnt", "bov")
        client.reply("005", *ISUPPORT.split(), "are supported by this server")
        self.motd(client)
        self.notify("connection_made", client=client)

    def motd(self, client: Client) -> None:
        """Send the message of the day."""
        client.reply("375", f"- {NAME} message of the day -")
        for line in MOTD:
            client.reply("372", f"- {line}")
        client.reply("376", "End of MOTD command")

    def rename(self, client: Client, nick: str) -> None:
        """Give `client` the nick `nick`, which is free."""
        old = client.data.get("nick")
        if old == nick:
            return
        if client.registered:
            self._broadcast(client, Message("NICK", (nick,), client.source))
        self._nicks.pop(_fold(old or ""), None)
        self._nicks[_fold(nick)] = client
        client.data["nick"] = nick
        if client.registered:
            client.nick = nick
        else:
            self.welcome(client)

    def leave(self, client: Client, channel: Channel) -> None:
        """Take `client` out of `find_channel`; an empty one ends."""
        channel.members.pop(client, None)
        if not channel.members:
            self._rooms.pop(_fold(channel.name), None)

    def disconnect(self, client: Client, reason: str) -> None:
        """`client` has left the network; a second call does nothing."""
        nick = client.data.get("nick")
        if nick is None or self.client(nick) is not client:
            return
        del self._nicks[_fold(nick)]
        if client.registered:
            self._broadcast(client, Message("QUIT", (reason,), client.source), itself=False)
        for channel in self.channels_of(client):
            self.leave(client, channel)

    def _broadcast(self, client: Client, message: Message, itself: bool = True) -> None:
        others = {member for channel in self.channels_of(client) for member in channel.members}
        for member in (others | {client}) if itself else (others - {client}):
            member.send(message)
