"""irc3's bot on top of a network of ours.

irc3 is here for its plugins, and loaded only where there are some. Its own connection loses bytes,
does not know tags, floods and reconnects by itself; so lines go through our session first, and the
bot gets them afterwards, without tags. What a plugin sends goes out through our splitting and
pacing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from harnesses.irc.transport.connection import IrcConnection, Sent
from harnesses.irc.transport.irc3_compat import LOGGING, irc3
from harnesses.irc.transport.network import Network

REPLACED = ("core", "sasl", "autojoins", "userlist")
"""Plugins of irc3 whose work is done here; other plugins may require them, and get us."""


class Irc3Bot(irc3.IrcBot):  # type: ignore[misc]
    """irc3's bot without its own connection: plugins are called, and send through `network`."""

    logging_config = LOGGING

    def __init__(self, network: Network, plugins: Iterable[str]) -> None:
        self._network = network
        super().__init__(loop=asyncio.get_running_loop(), asynchronous=False)
        self.registry.includes.update(f"irc3.plugins.{name}" for name in REPLACED)
        self.include(*plugins)
        self._follow_nick(network.nick)

    def on_connected(self, connection: IrcConnection) -> None:
        """Take a new connection."""
        self.protocol = connection
        self.notify("connection_made")

    def on_ready(self) -> None:
        """Take note that the server has welcomed us."""
        self.notify("server_ready")

    def on_closed(self) -> None:
        """Take note that the connection is gone."""
        self.notify("connection_lost")

    def on_line(self, line: str, nick: str) -> None:
        """Take a line of the server; `nick` is ours after it."""
        self._follow_nick(nick)
        self.dispatch(line)

    def on_sent(self, line: str) -> None:
        """Take a line of our own that has gone out."""
        self.dispatch(line, iotype="out")

    def _follow_nick(self, nick: str) -> None:
        """Have events that mention our nick listen to the new one."""
        if self.config["nick"] != nick:
            self.config["nick"] = nick
            self.recompile()

    def recompile(self) -> None:
        """Compile all events again. irc3's own does not store what it has compiled, and takes a
        nick for a regular expression."""
        config = {**self.config, "nick": re.escape(self.config["nick"])}
        for iotype, compiled in self.registry.events_re.items():
            events = self.registry.events[iotype]
            compiled[:] = [(regexp, events[regexp][0].compile(config)) for regexp, _ in compiled]

    @property
    def channels(self) -> dict[str, set[str]]:
        """The nicks by channel, as irc3's own `userlist` offers them."""
        return {name: set(self._network.members(name)) for name in self._network.channels}

    def send_line(self, data: str, nowait: bool = False) -> Sent:
        """Send one raw line; a plugin cannot overtake, `nowait` or not."""
        return self._network.send_line(data)

    def send(self, data: str) -> None:
        """Send raw lines."""
        for line in data.rstrip("\r\n").split("\n"):
            self._network.send_line(line)

    def privmsg(self, target: str, message: str, nowait: bool = False) -> Sent | None:
        """Send a text, cut into lines."""
        return self._network.say("PRIVMSG", target, message)

    def notice(self, target: str, message: str, nowait: bool = False) -> Sent | None:
        """Send a notice, cut into lines."""
        return self._network.say("NOTICE", target, message)

    def action(self, target: str, message: str, nowait: bool = False) -> Sent | None:
        """Send an action, cut into lines."""
        return self._network.say("ACTION", target, message)

    def join(self, target: str) -> None:
        """Join a channel and stay."""
        self._network.join(target)

    def part(self, target: str, reason: str | None = None) -> None:
        """Leave a channel for good."""
        self._network.part(target, reason or "")

    def quit(self, reason: str | None = None) -> None:
        """Leave the network for good."""
        self._network.close(reason or "")
