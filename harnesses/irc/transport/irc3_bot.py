"""irc3's bot as the plugin host of a `Network`.

irc3 is used for its plugins, and loaded only if some are configured. Its own connection loses
bytes, does not support message tags, does not limit its rate and reconnects by itself. So lines
pass through our session first, and the bot gets them afterwards, without tags. Messages of plugins
go through our line splitting and send queue.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from typing import ClassVar

from harnesses.irc.protocol.events import Talk
from harnesses.irc.protocol.message import talk
from harnesses.irc.transport.connection import Sent
from harnesses.irc.transport.network import Network

# Importing irc3 sets the class of all later loggers and replaces `asyncio.sleep` and `asyncio.wait`
# in the whole process.
_logger_class = logging.getLoggerClass()

import irc3  # noqa: E402

logging.setLoggerClass(_logger_class)
asyncio.sleep = asyncio.tasks.sleep
asyncio.wait = asyncio.tasks.wait

REPLACED = ("core", "sasl", "autojoins", "userlist")
"""Plugins of irc3 that we replace; they count as loaded for other plugins that require them."""


class Irc3Bot(irc3.IrcBot):  # type: ignore[misc]
    """irc3's bot without a connection of its own; its plugins send through `network`."""

    logging_config: ClassVar = {"version": 1, "incremental": True}  # leaves logging as it is

    def __init__(self, network: Network, plugins: Iterable[str]) -> None:
        self._network = network
        super().__init__(loop=asyncio.get_running_loop(), asynchronous=False)
        self.registry.includes.update(f"irc3.plugins.{name}" for name in REPLACED)
        self.include(*plugins)

    def dispatch(self, data: str, iotype: str = "in", client: object = None) -> None:
        """Pass a line to the plugins; event patterns that contain our nick get the current one."""
        if self.config["nick"] != self._network.nick:
            self.config["nick"] = self._network.nick
            self.recompile()
        super().dispatch(data, iotype, client)

    def recompile(self) -> None:
        """Recompile all event patterns.

        irc3's own method stores the result where it is not used, and inserts the nick into the
        patterns without escaping it.
        """
        config = {**self.config, "nick": re.escape(self.config["nick"])}
        for iotype, compiled in self.registry.events_re.items():
            events = self.registry.events[iotype]
            compiled[:] = [(regexp, events[regexp][0].compile(config)) for regexp, _ in compiled]

    @property
    def channels(self) -> dict[str, set[str]]:
        """The nicks by channel, as irc3's `userlist` plugin provides them."""
        roster = self._network.roster
        return {name: set(roster.nicks(name)) for name in roster.channels}

    def send_line(self, data: str, nowait: bool = False) -> Sent:
        """Send one raw line. `nowait` is ignored: plugins cannot bypass the rate limit."""
        return self._network.send_line(data)

    def send(self, data: str) -> None:
        """Send raw lines."""
        for line in data.rstrip("\r\n").split("\n"):
            self._network.send_line(line)

    def privmsg(self, target: str, message: str, nowait: bool = False) -> Sent | None:
        """Send a text, split into lines; the result is that of the last one."""
        return self._say("PRIVMSG", target, message)

    def notice(self, target: str, message: str, nowait: bool = False) -> Sent | None:
        """Send a notice, split into lines."""
        return self._say("NOTICE", target, message)

    def action(self, target: str, message: str, nowait: bool = False) -> Sent | None:
        """Send an action, split into lines."""
        return self._say("ACTION", target, message)

    def _say(self, kind: Talk, target: str, text: str) -> Sent | None:
        # The lines are not tracked: if the server echoes them, the echoes are logged.
        pieces = self._network.split(target, text, kind)
        sent = [self._network.send_line(talk(kind, target, piece).render()) for piece in pieces]
        return sent[-1] if sent else None

    def join(self, target: str) -> None:
        """Join a channel, now and after each reconnect."""
        self._network.join(target)

    def part(self, target: str, reason: str | None = None) -> None:
        """Leave a channel and do not rejoin it after a reconnect."""
        self._network.part(target, reason or "")

    def quit(self, reason: str | None = None) -> None:
        """Leave the network and do not reconnect."""
        self._network.close(reason or "")
