"""The real IRC tendril, running in the test's event loop and connected to a real IRC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harnesses.irc.tendril import IrcTendril
from llm.web.fetcher import Fetcher
from storage.chat_log.event import PUBLIC
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.memory.conversations import Turn
from storage.settings import log_path
from terrarium.clock import Clock
from terrarium.config import Config
from tests.kit.patience import PATIENCE

ROOM = "#terrarium"


def irc_config(data: Path, irc_port: int, api_url: str, **tables: Mapping[str, Any]) -> Config:
    """Return a configuration for one network on loopback; `tables` override its defaults."""
    quick = {"lines_per_second": 100, "person_per_minute": 600}
    # The tests have people on the embedded server, who would all be admins without any.
    nobody = {"admins": ["nobody!*@*"]}
    irc = {"server": "127.0.0.1", "port": irc_port} | quick | nobody | dict(tables.get("irc", {}))
    agent = {"api_url": api_url, "timezone": "UTC"} | dict(tables.get("agent", {}))
    return Config({**tables, "irc": irc, "agent": agent}, None, data)


@asynccontextmanager
async def irc_tendril(
    config: Config,
    clock: Clock | None = None,
    fetcher: Fetcher | None = None,
    *,
    joins: bool = True,
) -> AsyncIterator[IrcTendril]:
    """Run a tendril; yield it once it has joined its channels or, unless it `joins`, at once."""
    tendril = IrcTendril(config, clock, fetcher)
    running = asyncio.create_task(tendril.run())
    try:
        async with asyncio.timeout(PATIENCE):
            for network in tendril.networks.values() if joins else ():
                await network.all_joined.wait()
        yield tendril
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def person(nick: str, ircd: str = "embedded") -> str:
    """Return the name by which memory knows a test client that is not logged in to services."""
    ident = "~" if ircd == "ngircd" else ""  # the mark of a user name that nobody has confirmed
    return f"{nick}!{ident}{nick}@127.0.0.1"


def conversation_with(nick: str, ircd: str = "embedded") -> str:
    """Return the name of the conversation with a test client that is not logged in to services."""
    return f"irc/{ROOM}/{person(nick, ircd)}"


async def kept_turns(tendril: IrcTendril, conversation: str) -> list[Turn]:
    """Return the turns of a short conversation, after those being answered are stored."""
    # Waits for the conversation's lock; a short conversation has nothing to compact.
    await tendril.turns.compact(conversation)
    return await tendril.conversations.turns(conversation)


async def logged(config: Config) -> list[tuple[str, str, str]]:
    """Return what a stopped tendril logged on public channels: type, nick, text or target."""
    async with Database.open(log_path(config)) as database:
        events = await ChatLog(database).find(Query(scope=PUBLIC, limit=10_000))
    return [(event.type.value, event.nick, event.text or event.target) for event in events]
