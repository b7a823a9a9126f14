"""The embedded IRC server: clients, channels and what they receive, and the commands."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

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

_NICK = re.compile(r"[A-Za-z\[\]\\`_^{|}][A-Za-z0-9\[\]\\`_^{|}-]*")
_CHANNEL = re.compile(r"#[^\s,\x07]+")
_FLAGS = "imnt"


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
                run(self._server, self, message)

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
    """A server that is a network by itself; it owns the nicks and channels."""

    def __init__(self) -> None:
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


Run = Callable[[Server, Client, Message], None]
"""Runs a command of a client."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its handler, minimum number of parameters, and whether it needs registration."""

    run: Run
    needs: int
    registered: bool


COMMANDS: dict[str, Command] = {}


def command(*names: str, needs: int = 0, registered: bool = True) -> Callable[[Run], Run]:
    """Return a decorator that makes a function the handler of the commands `names`."""

    def add(run: Run) -> Run:
        COMMANDS.update(dict.fromkeys(names, Command(run, needs, registered)))
        return run

    return add


def run(server: Server, client: Client, message: Message) -> None:
    """Run a message of a client."""
    found = COMMANDS.get(message.command)
    if found is None:
        # Cross-protocol attack: a web page can make a browser POST lines to this port, which would
        # otherwise be run as commands once the HTTP headers have been ignored.
        if not client.is_registered and message.command in ("GET", "HEAD", "POST", "PUT"):
            client.end("This is not a web server")
        else:
            client.reply("421", message.command, "Unknown command")
    elif found.registered and not client.is_registered:
        client.reply("451", "You have not registered")
    elif len([p for p in message.params if p]) < found.needs:
        client.reply("461", message.command, "Not enough parameters")
    else:
        found.run(server, client, message)


@command("CAP", needs=1, registered=False)
def _cap(server: Server, client: Client, message: Message) -> None:
    kind, source = message.param(0).upper(), Source(NAME)
    # https://ircv3.net/specs/extensions/capability-negotiation: LS and REQ suspend the registration
    # until CAP END. This server has no capabilities.
    if kind in ("LS", "REQ") and not client.is_registered:
        client.is_negotiating = True
    if kind in ("LS", "LIST"):
        client.send(Message("CAP", (client.nick or "*", kind, ""), source))
    elif kind == "REQ":
        client.send(Message("CAP", (client.nick or "*", "NAK", message.param(1)), source))
    elif kind == "END":
        client.is_negotiating = False
        server.welcome(client)


@command("PASS", "PONG", registered=False)
def _ignore(server: Server, client: Client, message: Message) -> None:
    """Do nothing: there is no password, and any line resets the client's idle time."""


@command("USER", needs=4, registered=False)
def _user(server: Server, client: Client, message: Message) -> None:
    if client.is_registered:
        client.reply("462", "You may not reregister")
        return
    user = re.sub(r"[^A-Za-z0-9._-]", "", message.param(0))[:10]
    client.source = replace(client.source, user=user or "user")
    client.realname = message.param(3)
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
    client.send(Message("PONG", (NAME, message.param(0)), Source(NAME)))


@command("QUIT", registered=False)
def _quit(server: Server, client: Client, message: Message) -> None:
    reason = f"Quit: {message.param(0)}" if message.param(0) else "Quit"
    server.disconnect(client, reason)
    client.end("Quit")


@command("MOTD")
def _motd(server: Server, client: Client, message: Message) -> None:
    server.motd(client)


@command("PRIVMSG", "NOTICE")
def _talk(server: Server, client: Client, message: Message) -> None:
    text, is_quiet = message.param(1), message.command == "NOTICE"
    if not text or not message.param(0):
        if not is_quiet:  # RFC 1459, section 4.4.2: a NOTICE never gets an automatic reply
            client.reply("412" if message.param(0) else "411", "Nothing to send")
        return
    for name in message.param(0).split(",")[:TARGETS]:
        channel, person = server.find_channel(name), server.client(name)
        if channel and channel.may_speak(client):
            line = Message(message.command, (channel.name, text), client.source)
            channel.send(line, but=client)
        elif person and person.is_registered:
            person.send(Message(message.command, (person.nick, text), client.source))
            if person.away and not is_quiet:
                client.reply("301", person.nick, person.away)
        elif not is_quiet:
            why = "Cannot send to channel" if channel else "No such nick/channel"
            client.reply("404" if channel else "401", name, why)


@command("AWAY")
def _away(server: Server, client: Client, message: Message) -> None:
    client.away = message.param(0)
    if client.away:
        client.reply("306", "You have been marked as being away")
    else:
        client.reply("305", "You are no longer marked as being away")


@command("JOIN", needs=1)
def _join(server: Server, client: Client, message: Message) -> None:
    for name in message.param(0).split(","):
        if not _CHANNEL.fullmatch(name) or len(name) > CHANNELLEN:
            client.reply("403", name, "No such channel")
        elif channel := server.enter(client, name):
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
        channel.topic, channel.topic_by = message.param(1), client.nick
        channel.topic_at = int(time.time())
        channel.send(Message("TOPIC", (channel.name, channel.topic), client.source))


@command("MODE", needs=1)
def _mode(server: Server, client: Client, message: Message) -> None:
    target, modes = message.param(0), message.param(1)
    channel = server.find_channel(target)
    if not target.startswith("#"):
        _change_user_modes(server, client, target, modes)
    elif not channel:
        client.reply("403", target, "No such channel")
    elif not modes:
        client.reply("324", channel.name, "+" + "".join(sorted(channel.modes)))
        client.reply("329", channel.name, str(channel.created))
    elif modes.lstrip("+") == "b":  # some clients query the ban list on JOIN; there are no bans
        client.reply("368", channel.name, "End of channel ban list")
    elif _is_allowed(client, channel):
        _change_modes(server, client, channel, message)


def _change_modes(server: Server, client: Client, channel: Channel, message: Message) -> None:
    sign, changed = "+", ""
    arguments, names = list(message.params[2:]), list[str]()
    for mode in message.param(1):
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


def _change_user_modes(server: Server, client: Client, target: str, modes: str) -> None:
    if server.client(target) is not client:
        client.reply("502", "Can't change mode for other users")
    elif not modes:
        client.reply("221", "+" + "".join(sorted(client.modes)))
    elif known := [mode for mode in modes if mode in "iw"]:
        sign = "-" if modes.startswith("-") else "+"
        for mode in known:
            _switch(client.modes, mode, sign)
        client.send(Message("MODE", (client.nick, sign + "".join(known)), client.source))


def _switch(modes: set[str], mode: str, sign: str) -> None:
    if sign == "+":
        modes.add(mode)
    else:
        modes.discard(mode)


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


@command("NAMES")
def _names(server: Server, client: Client, message: Message) -> None:
    if channel := server.find_channel(message.param(0)):
        _show_names(client, channel)
    else:
        client.reply("366", message.param(0), "End of NAMES list")


@command("LIST")
def _list(server: Server, client: Client, message: Message) -> None:
    wanted = [server.find_channel(name) for name in message.param(0).split(",")]
    client.reply("321", "Channel", "Users  Name")
    for channel in server.channels:
        if channel in wanted or not message.param(0).startswith("#"):
            client.reply("322", channel.name, str(len(channel.members)), channel.topic)
    client.reply("323", "End of LIST")


@command("WHO")
def _who(server: Server, client: Client, message: Message) -> None:
    mask = message.param(0)
    channel, person = server.find_channel(mask), server.client(mask)
    for found in list(channel.members) if channel else [person] if person else []:
        flags = ("G" if found.away else "H") + (channel.symbol(found) if channel else "")
        where = channel.name if channel else "*"
        names = (found.source.user or "*", found.source.host or "*", NAME, found.nick)
        client.reply("352", where, *names, flags, f"0 {found.realname}")
    client.reply("315", mask, "End of WHO list")


@command("WHOIS", needs=1)
def _whois(server: Server, client: Client, message: Message) -> None:
    nick = message.params[-1]
    person = server.client(nick)
    if not person or not person.is_registered:
        client.reply("401", nick, "No such nick/channel")
    else:
        user, host = person.source.user or "*", person.source.host or "*"
        client.reply("311", person.nick, user, host, "*", person.realname)
        if channels := server.channels_of(person):
            shown = (channel.symbol(person) + channel.name for channel in channels)
            client.reply("319", nick, " ".join(shown))
        client.reply("312", nick, NAME, "Terrarium")
        if person.away:
            client.reply("301", nick, person.away)
        idle = str(int(time.time() - person.heard))
        client.reply("317", nick, idle, str(person.signon), "seconds idle, signon time")
    client.reply("318", nick, "End of WHOIS list")


@command("USERHOST", needs=1)
def _userhost(server: Server, client: Client, message: Message) -> None:
    found = [server.client(nick) for nick in message.params]
    shown = (
        f"{c.nick}={'-' if c.away else '+'}{c.source.user}@{c.source.host}"
        for c in found
        if c and c.is_registered
    )
    client.reply("302", " ".join(shown))


@command("ISON", needs=1)
def _ison(server: Server, client: Client, message: Message) -> None:
    nicks = " ".join(message.params).split()
    client.reply("303", " ".join(nick for nick in nicks if server.client(nick)))


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
