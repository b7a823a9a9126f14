"""The embedded IRC server: its clients, its channels, and the table of its commands.

RFC 2812 as current clients use it (https://modern.ircdocs.horse/). irc3d has commands of the same
names, which collapse spaces, format user text and know no channel modes; ours stand before them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from harnesses.irc.protocol.isupport import casemap
from harnesses.irc.protocol.message import LineBuffer, Message, Source, parse, strip_tags
from harnesses.irc.transport.irc3_compat import LOGGING, ServerCommands, irc3d

NAME = "terrarium.local"

NICKLEN, CHANNELLEN, TARGETS = 30, 50, 4

ISUPPORT = (
    f"CASEMAPPING=ascii CHANMODES=b,,,imnt CHANNELLEN={CHANNELLEN} CHANTYPES=# LINELEN=512 "
    f"MAXTARGETS={TARGETS} NETWORK=Terrarium NICKLEN={NICKLEN} PREFIX=(ov)@+ USERLEN=10"
)
MOTD = ("Terrarium's own server.", "Join #terrarium and type .help")


LINE = 510
"""Bytes of a line to a client, without its CRLF."""

SEND_QUEUE = 1024 * 1024
"""Bytes that may wait for a client that does not read."""

QUIET, REGISTER_WITHIN = 120.0, 60.0
"""Seconds: silence before a PING and again before the end; time to become registered."""


_fold = casemap("ascii")

Run = Callable[["Server", "Client", Message], None]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what it does, the parameters it needs, and whether it needs a welcome first."""

    run: Run
    needs: int
    registered: bool


COMMANDS: dict[str, Command] = {}
"""All of them by name."""


def command(name: str, needs: int = 0, registered: bool = True) -> Callable[[Run], Run]:
    """Put a function into the table as the command `name`."""

    def add(run: Run) -> Run:
        COMMANDS[name] = Command(run, needs, registered)
        return run

    return add


class Client(irc3d.IrcClient):  # type: ignore[misc]
    """irc3d's client with bytes that stay what they are.

    Texts are `str` in which bytes that are not UTF-8 are surrogates, so that they leave as they
    came. `data` and `fwrite` are those that plugins of irc3d know.
    """

    def __init__(self, factory: Server) -> None:
        self.factory = factory
        self.negotiating = False
        self.away = ""
        self._buffer = LineBuffer(lambda line: line.decode("utf-8", "surrogateescape"))
        self._pinged = False

    def __getattr__(self, name: str) -> Any:
        if name == "data" or name not in self.data:
            raise AttributeError(name)
        return self.data[name]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Called by asyncio."""
        super().connection_made(transport)
        self._timer = self.factory.loop.call_later(REGISTER_WITHIN, self._check)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self.data["data_received"] = time.time()
        self._pinged = False
        for line in self._buffer.feed(data):
            if self.closed:
                return
            self.factory.on_line(self, line.replace("\0", "").replace("\r", ""))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._timer.cancel()
        self.closed = True
        self.factory.clients.pop(self.uuid, None)
        self.factory.disconnect(self, "Connection closed")
        self.factory.notify("connection_lost", client=self)

    @property
    def registered(self) -> bool:
        """True when the client has been welcomed."""
        return "signon" in self.data

    @property
    def source(self) -> Source:
        """The client as others see it."""
        return Source(self.nick, self.data["username"], self.data["host"])

    def write(self, data: str | None) -> None:
        """Send lines as they are, each cut at the protocol's length."""
        for line in (data or "").rstrip("\r\n").split("\r\n"):
            self.factory.dispatch(line, client=self, iotype="out")
            if not self.closed and not self.transport.is_closing():
                self.transport.write(_cut(line.encode("utf-8", "surrogateescape")) + b"\r\n")
        if not self.closed and self.transport.get_write_buffer_size() > SEND_QUEUE:
            self.closed = True
            self.transport.abort()

    def send(self, message: Message) -> None:
        """Send one message."""
        self.write(message.render())

    def reply(self, numeric: str, *params: str) -> None:
        """Send a numeric of the server; what users wrote is made to fit in its place."""
        middle = [_word(param) for param in params[:-1]]
        me = self.data.get("nick") or "*"
        self.send(Message(numeric, (me, *middle, params[-1]), Source(self.data["srv"])))

    def end(self, reason: str) -> None:
        """Say why, and close when it is written."""
        if not self.closed:
            self.send(Message("ERROR", (f"Closing link: {reason}",)))
            self.closed = True
            self.transport.close()

    def _check(self) -> None:
        idle = time.time() - self.data["data_received"]
        if not self.registered or (self._pinged and idle >= QUIET):
            self.end("Ping timeout")
            return
        if idle >= QUIET:
            self._pinged = True
            self.send(Message("PING", (self.data["srv"],)))
        self._timer = self.factory.loop.call_later(QUIET, self._check)


def _word(text: str) -> str:
    return text.strip().partition(" ")[0].lstrip(":") or "*"


def _cut(line: bytes) -> bytes:
    """Return at most `LINE` bytes, not ending within a character of UTF-8."""
    if len(line) <= LINE:
        return line
    end = LINE
    while end > LINE - 4 and line[end] & 0xC0 == 0x80:
        end -= 1
    return line[: end if line[end] & 0xC0 != 0x80 else LINE]


SYMBOLS = {"o": "@", "v": "+"}
"""The member modes, highest first."""


@dataclass(slots=True, eq=False)
class Channel:
    """A channel: its members with their modes, in the order of joining."""

    name: str
    created: int
    topic: str = ""
    topic_by: str = ""
    topic_at: int = 0
    modes: set[str] = field(default_factory=lambda: {"n", "t"})
    members: dict[Client, set[str]] = field(default_factory=dict)

    def is_op(self, client: Client) -> bool:
        """Return whether `client` is an operator here."""
        return "o" in self.members.get(client, ())

    def may_speak(self, client: Client) -> bool:
        """Return whether the modes +n and +m let `client` speak."""
        if client not in self.members:
            return "n" not in self.modes and "m" not in self.modes
        return "m" not in self.modes or bool(self.members[client])

    def symbol(self, client: Client) -> str:
        """Return the member's highest symbol, or ""."""
        modes = self.members[client]
        return next((symbol for mode, symbol in SYMBOLS.items() if mode in modes), "")

    def send(self, message: Message, but: Client | None = None) -> None:
        """Send `message` to all members except `but`."""
        for member in list(self.members):
            if member is not but:
                member.send(message)


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
        """Return the client that has `nick`."""
        return self._nicks.get(_fold(nick))

    def find_channel(self, name: str, create: bool = False) -> Channel | None:
        """Return the channel `name`."""
        if create and _fold(name) not in self._rooms:
            self._rooms[_fold(name)] = Channel(name, int(time.time()))
        return self._rooms.get(_fold(name))

    def channels_of(self, client: Client) -> list[Channel]:
        """Return the channels that `client` is in."""
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
        """Remove a client that has left the network; a second call does nothing."""
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
