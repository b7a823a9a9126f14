"""The embedded IRC server: clients, channels and what they receive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harnesses.irc.protocol.message import LineBuffer, Message, Source, casemap, parse

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

SYMBOLS = {"o": "@", "v": "+"}
"""The member modes and their symbols, highest first."""

_fold = casemap("ascii")

Run = Callable[["Server", "Client", Message], None]
"""Runs a command of a client."""


class Client(asyncio.Protocol):
    """A client's connection.

    Text is decoded with `surrogateescape`, so bytes that are not UTF-8 are sent as they were
    received. `signon` and `heard` are Unix times; `signon` is None until the client is registered.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.source = Source("")
        self.realname = self.away = ""
        self.modes: set[str] = set()
        self.signon: int | None = None
        self.heard = time.time()
        self.is_negotiating = False
        self._buffer = LineBuffer(lambda line: line.decode("utf-8", "surrogateescape"))
        self._is_pinged = self._is_closed = False

    @property
    def nick(self) -> str:
        """The client's nick, or "" if it has none yet."""
        return self.source.nick

    @property
    def is_registered(self) -> bool:
        """True after the welcome."""
        return self.signon is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # A parameter that begins with a colon would be the last one of its line.
        host = transport.get_extra_info("peername")[0]
        self.source = Source("", None, f"0{host}" if host.startswith(":") else host)
        self._server.clients.add(self)
        self._timer = asyncio.get_running_loop().call_later(REGISTER_TIMEOUT, self._check)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self.heard, self._is_pinged = time.time(), False
        for line in self._buffer.feed(data):
            message = parse(line.replace("\0", "").replace("\r", ""))
            if message and not self._is_closed:
                self._server.run(self._server, self, message)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._timer.cancel()
        self._is_closed = True
        self._server.clients.discard(self)
        self._server.disconnect(self, "Connection closed")

    def send(self, message: Message) -> None:
        """Send one message, truncated to `MAX_LINE` bytes.

        A client that lets more than `SEND_QUEUE` bytes accumulate is disconnected.
        """
        if self._is_closed or self._transport.is_closing():
            return
        line = message.render().encode("utf-8", "surrogateescape")
        if len(line) > MAX_LINE:
            # Not within a UTF-8 character: step back over at most four continuation bytes
            # (10xxxxxx) to its beginning; if there are more the text is no UTF-8, and any position
            # will do.
            end = MAX_LINE
            while end > MAX_LINE - 4 and line[end] & 0xC0 == 0x80:
                end -= 1
            line = line[: end if line[end] & 0xC0 != 0x80 else MAX_LINE]
        self._transport.write(line + b"\r\n")
        if self._transport.get_write_buffer_size() > SEND_QUEUE:
            self._is_closed = True
            self._transport.abort()

    def reply(self, numeric: str, *params: str) -> None:
        """Send a numeric; parameters before the last are reduced to one valid word each."""
        middle = [p.strip().partition(" ")[0].lstrip(":") or "*" for p in params[:-1]]
        self.send(Message(numeric, (self.nick or "*", *middle, params[-1]), Source(NAME)))

    def end(self, reason: str) -> None:
        """Send ERROR with the reason, and close the connection once it is flushed."""
        self.send(Message("ERROR", (f"Closing link: {reason}",)))
        if not self._is_closed:
            self._is_closed = True
            self._transport.close()

    def _check(self) -> None:
        idle = time.time() - self.heard
        if not self.is_registered or (self._is_pinged and idle >= PING_AFTER):
            self.end("Ping timeout")
            return
        if idle >= PING_AFTER:
            self._is_pinged = True
            self.send(Message("PING", (NAME,)))
        self._timer = asyncio.get_running_loop().call_later(PING_AFTER, self._check)


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


class Server:
    """A server that is a network by itself; it owns the nicks and channels.

    `run` runs each message of a client.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.clients: set[Client] = set()
        self._nicks: dict[str, Client] = {}
        self._channels: dict[str, Channel] = {}

    @property
    def channels(self) -> list[Channel]:
        """All channels, in the order of creation."""
        return list(self._channels.values())

    def client(self, nick: str) -> Client | None:
        """Return the client that has `nick`, registered or not, or None."""
        return self._nicks.get(_fold(nick))

    def find_channel(self, name: str) -> Channel | None:
        """Return the channel `name`, or None."""
        return self._channels.get(_fold(name))

    def channels_of(self, client: Client) -> list[Channel]:
        """Return the channels that `client` is in."""
        return [channel for channel in self._channels.values() if client in channel.members]

    def enter(self, client: Client, name: str) -> Channel | None:
        """Add `client` to a channel, which is created if it does not exist; None if in it."""
        channel = self._channels.setdefault(_fold(name), Channel(name, int(time.time())))
        if client in channel.members:
            return None
        channel.members[client] = set() if channel.members else {"o"}
        return channel

    def leave(self, client: Client, channel: Channel) -> None:
        """Remove `client` from `channel`; an empty channel is deleted."""
        channel.members.pop(client, None)
        if not channel.members:
            self._channels.pop(_fold(channel.name), None)

    def welcome(self, client: Client) -> None:
        """Complete the registration if NICK and USER were received and CAP is not negotiating."""
        named = client.nick and client.source.user
        if not named or client.is_registered or client.is_negotiating:
            return
        client.signon = int(time.time())
        client.reply("001", f"Welcome to Terrarium {client.source}")
        client.reply("002", f"Your host is {NAME}")
        client.reply("003", "No data is kept")
        client.reply("004", NAME, "terrarium", "iw", "imnt", "bov")
        client.reply("005", *ISUPPORT.split(), "are supported by this server")
        self.motd(client)

    def motd(self, client: Client) -> None:
        """Send the message of the day."""
        client.reply("375", f"- {NAME} message of the day -")
        for line in MOTD:
            client.reply("372", f"- {line}")
        client.reply("376", "End of MOTD command")

    def rename(self, client: Client, nick: str) -> None:
        """Change the nick of `client` to `nick`, which must not belong to another client."""
        if client.nick == nick:
            return
        if client.is_registered:
            self._broadcast(client, Message("NICK", (nick,), client.source))
        self._nicks.pop(_fold(client.nick), None)
        self._nicks[_fold(nick)] = client
        client.source = Source(nick, client.source.user, client.source.host)
        self.welcome(client)

    def disconnect(self, client: Client, reason: str) -> None:
        """Remove a client and send its QUIT to all who share a channel. Idempotent."""
        if self.client(client.nick) is not client:
            return
        del self._nicks[_fold(client.nick)]
        if client.is_registered:
            self._broadcast(client, Message("QUIT", (reason,), client.source), itself=False)
        for channel in self.channels_of(client):
            self.leave(client, channel)

    def _broadcast(self, client: Client, message: Message, itself: bool = True) -> None:
        others = {member for channel in self.channels_of(client) for member in channel.members}
        for member in (others | {client}) if itself else (others - {client}):
            member.send(message)
