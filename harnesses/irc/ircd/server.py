"""The embedded IRC server: clients, channels and the command table.

RFC 2812 as current clients use it (https://modern.ircdocs.horse/). irc3d's own commands of the same
names collapse spaces, use user text as a format string and lack channel modes; ours replace them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from harnesses.irc.protocol.message import LineBuffer, Message, Source, casemap, parse, strip_tags
from harnesses.irc.transport.irc3_compat import LOGGING, ServerCommands, irc3d

NAME = "terrarium.local"

NICKLEN, CHANNELLEN, TARGETS = 30, 50, 4

ISUPPORT = (
    f"CASEMAPPING=ascii CHANMODES=b,,,imnt CHANNELLEN={CHANNELLEN} CHANTYPES=# LINELEN=512 "
    f"MAXTARGETS={TARGETS} NETWORK=Terrarium NICKLEN={NICKLEN} PREFIX=(ov)@+ USERLEN=10"
)
MOTD = ("Terrarium's own server.", "Join #terrarium and type .help")


MAX_LINE = 510
"""Maximum bytes of a line to a client, without CRLF."""

SEND_QUEUE = 1024 * 1024
"""Maximum bytes buffered for a client that does not read; beyond that it is disconnected."""

PING_AFTER, REGISTER_TIMEOUT = 120.0, 60.0
"""Seconds of silence before a PING, and again before the client is disconnected; and the seconds
that a client has to register."""


_fold = casemap("ascii")

Run = Callable[["Server", "Client", Message], None]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its handler, minimum number of parameters, and whether it needs registration."""

    run: Run
    needs: int
    registered: bool


COMMANDS: dict[str, Command] = {}
"""The command table by name; the modules of the commands fill it when they are imported."""


def command(name: str, needs: int = 0, registered: bool = True) -> Callable[[Run], Run]:
    """Return a decorator that registers a function as the handler of the command `name`."""

    def add(run: Run) -> Run:
        COMMANDS[name] = Command(run, needs, registered)
        return run

    return add


class Client(irc3d.IrcClient):  # type: ignore[misc]
    """A client of irc3d that passes on all bytes unchanged.

    Text is decoded with `surrogateescape`, so bytes that are not UTF-8 are sent as they were
    received. `data` and `fwrite` are irc3d's interface for plugins.
    """

    def __init__(self, factory: Server) -> None:
        self.factory = factory
        self.negotiating = False
        self.away = ""
        self._buffer = LineBuffer(lambda line: line.decode("utf-8", "surrogateescape"))
        self._pinged = False

    def __getattr__(self, name: str) -> Any:
        # irc3d's version raises KeyError for an unknown name, and recurses before `data` is set.
        if name == "data" or name not in self.data:
            raise AttributeError(name)
        return self.data[name]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Called by asyncio."""
        super().connection_made(transport)
        self._timer = self.factory.loop.call_later(REGISTER_TIMEOUT, self._check)

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
        """True after the welcome; irc3d's own is true once NICK and USER have been received."""
        return "signon" in self.data

    @property
    def source(self) -> Source:
        """The client's source as others see it."""
        return Source(self.nick, self.data["username"], self.data["host"])

    def write(self, data: str | None) -> None:
        """Send lines unformatted, each truncated to `MAX_LINE` bytes.

        A client that lets more than `SEND_QUEUE` bytes accumulate is disconnected.
        """
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
        """Send a numeric; parameters before the last are reduced to one valid word each."""
        middle = [_word(param) for param in params[:-1]]
        me = self.data.get("nick") or "*"
        self.send(Message(numeric, (me, *middle, params[-1]), Source(self.data["srv"])))

    def end(self, reason: str) -> None:
        """Send ERROR with the reason, and close the connection once it is flushed."""
        if not self.closed:
            self.send(Message("ERROR", (f"Closing link: {reason}",)))
            self.closed = True
            self.transport.close()

    def _check(self) -> None:
        idle = time.time() - self.data["data_received"]
        if not self.registered or (self._pinged and idle >= PING_AFTER):
            self.end("Ping timeout")
            return
        if idle >= PING_AFTER:
            self._pinged = True
            self.send(Message("PING", (self.data["srv"],)))
        self._timer = self.factory.loop.call_later(PING_AFTER, self._check)


def _word(text: str) -> str:
    return text.strip().partition(" ")[0].lstrip(":") or "*"


def _cut(line: bytes) -> bytes:
    """Truncate to at most `MAX_LINE` bytes, not within a UTF-8 character."""
    if len(line) <= MAX_LINE:
        return line
    # Step back over at most four continuation bytes (10xxxxxx) to the beginning of a character; if
    # there are more the text is no UTF-8, and any position will do.
    end = MAX_LINE
    while end > MAX_LINE - 4 and line[end] & 0xC0 == 0x80:
        end -= 1
    return line[: end if line[end] & 0xC0 != 0x80 else MAX_LINE]


SYMBOLS = {"o": "@", "v": "+"}
"""The member modes and their symbols, highest first."""


@dataclass(slots=True, eq=False)
class Channel:
    """A channel; `members` maps clients to their member modes, in the order of joining."""

    name: str
    created: int
    topic: str = ""
    topic_by: str = ""
    topic_at: int = 0
    modes: set[str] = field(default_factory=lambda: {"n", "t"})
    members: dict[Client, set[str]] = field(default_factory=dict)

    def is_op(self, client: Client) -> bool:
        """Return whether `client` is an operator of the channel."""
        return "o" in self.members.get(client, ())

    def may_speak(self, client: Client) -> bool:
        """Return whether the channel modes n (no external messages) and m allow `client` to send.

        In a moderated channel (m) only members with a member mode may.
        """
        if client not in self.members:
            return "n" not in self.modes and "m" not in self.modes
        return "m" not in self.modes or bool(self.members[client])

    def symbol(self, client: Client) -> str:
        """Return the symbol of the member's highest mode, or ""."""
        modes = self.members[client]
        return next((symbol for mode, symbol in SYMBOLS.items() if mode in modes), "")

    def send(self, message: Message, but: Client | None = None) -> None:
        """Send `message` to all members except `but`."""
        for member in list(self.members):
            if member is not but:
                member.send(message)


class _Commands(ServerCommands):  # type: ignore[misc]
    """irc3d's command plugin, which skips the commands that `Server.on_line` has handled."""

    def on_command(self, cmd: str, **kwargs: Any) -> None:
        if cmd.upper() not in COMMANDS:
            super().on_command(cmd, **kwargs)


class Server(irc3d.IrcServer):  # type: ignore[misc]
    """A server that is a network by itself; it owns the nicks and channels."""

    logging_config = LOGGING

    def __init__(self, includes: Iterable[str] = ()) -> None:
        self._nicks: dict[str, Client] = {}
        self._rooms: dict[str, Channel] = {}
        self.source = Source(NAME)
        super().__init__(loop=asyncio.get_running_loop(), servername=NAME)
        # Registered beforehand, irc3d's core and userlist plugins are not loaded when a plugin
        # requires them, and ours takes the place of its command plugin.
        self.registry.includes.update(("irc3d.plugins.core", "irc3d.plugins.userlist"))
        self.registry.plugins["irc3d.plugins.command.ServerCommands"] = _Commands(self)
        self.include("irc3d.plugins.command", *includes)

    @property
    def channel_list(self) -> list[Channel]:
        """All channels, in the order of creation."""
        return list(self._rooms.values())

    def client(self, nick: str) -> Client | None:
        """Return the client that has `nick`, registered or not, or None."""
        return self._nicks.get(_fold(nick))

    def find_channel(self, name: str, create: bool = False) -> Channel | None:
        """Return the channel `name`, or None; with `create` it is created if it does not exist."""
        if create and _fold(name) not in self._rooms:
            self._rooms[_fold(name)] = Channel(name, int(time.time()))
        return self._rooms.get(_fold(name))

    def channels_of(self, client: Client) -> list[Channel]:
        """Return the channels that `client` is in."""
        return [channel for channel in self._rooms.values() if client in channel.members]

    def on_line(self, client: Client, line: str) -> None:
        """Handle a line of a client: run its command, then notify irc3d's plugins."""
        if not (message := parse(line)):
            return
        # Cross-protocol attack: a web page can make a browser POST lines to this port, which would
        # otherwise be run as commands once the HTTP headers have been ignored.
        if not client.registered and message.command in ("GET", "HEAD", "POST", "PUT"):
            client.end("This is not a web server")
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
        """Complete the registration if NICK and USER were received and CAP is not negotiating."""
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
        """Change the nick of `client` to `nick`, which must not belong to another client."""
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
        """Remove `client` from `channel`; an empty channel is deleted."""
        channel.members.pop(client, None)
        if not channel.members:
            self._rooms.pop(_fold(channel.name), None)

    def disconnect(self, client: Client, reason: str) -> None:
        """Remove a client and send its QUIT to all who share a channel. Idempotent."""
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
