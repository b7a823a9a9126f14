"""A running `Network` of the IRC tendril, and a recorder of its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.irc3_bot import Irc3Bot
from harnesses.irc.transport.network import Network
from terrarium.clock import Backoff
from tests.kit.patience import PATIENCE


class Ears:
    """Records the events of a network."""

    def __init__(self) -> None:
        self.events: list[IrcEvent] = []
        self._news = asyncio.Event()

    def __call__(self, event: IrcEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def heard(self, text: str) -> IrcEvent:
        """Wait for and return the first event with this text."""
        return await self.until(lambda event: event.text == text)

    async def until(self, true: Callable[[IrcEvent], bool]) -> IrcEvent:
        """Wait for and return the first event that satisfies the predicate."""
        async with asyncio.timeout(PATIENCE):
            while not (found := [event for event in self.events if true(event)]):
                self._news.clear()
                await self._news.wait()
        return found[0]

    def texts(self) -> list[str]:
        """Return the texts of messages, notices and actions, in order."""
        return [e.text for e in self.events if e.type in ("PRIVMSG", "NOTICE", "ACTION")]


@asynccontextmanager
async def running(port: int, ears: Ears, **settings: Any) -> AsyncIterator[Network]:
    """Run a network connected to a loopback port; it quits on exit."""
    keys: dict[str, Any] = {"server": "127.0.0.1", "port": port, "channels": ("#c",), **settings}
    names = ("policies", "silence")
    modules = keys.pop("plugins", ())
    options = {name: keys.pop(name) for name in names if name in keys}
    if modules:
        options["plugins"] = lambda network: Irc3Bot(network, modules)
    network = Network("net", NetworkSettings(**keys), backoff=Backoff(0.05, 300.0), **options)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(network.run(ears))
        try:
            yield network
        finally:
            await network.quit("the test is over")


@asynccontextmanager
async def joined(port: int, ears: Ears, **settings: Any) -> AsyncIterator[Network]:
    """Run a network; yield it once it has joined its channels."""
    async with running(port, ears, **settings) as network, asyncio.timeout(PATIENCE):
        await network.all_joined.wait()
        yield network
