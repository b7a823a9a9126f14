"""What `terrarium logs` shows of the chat log: public channels only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from harnesses.core.terminal import harmless
from llm.irc_logs import line, stamp
from storage.chat_log import ChatLog, Query
from storage.config import Config
from storage.database import Database
from storage.errors import Unavailable
from storage.event import PUBLIC, SPOKEN
from storage.settings import log_path


async def search(
    config: Config, text: str, channel: str | None, nick: str | None, hours: float, limit: int
) -> list[str]:
    """The newest `limit` lines that people said with all words of `text`, oldest first.

    `channel` is "#name" or "network/#name"; `hours` is how far back, 0 for everything.
    Raises ConfigError and StorageError.
    """
    network, name = place(channel)
    query = Query(
        scope=PUBLIC,
        network=network,
        channel=name,
        nick=nick,
        types=SPOKEN,
        since=datetime.now(UTC) - timedelta(hours=hours) if hours else None,
        text=text,
        limit=limit,
    )
    async with _log(config) as log:
        events = await log.find(query)
    return [harmless(f"{event.network}/{event.channel} {line(event)}") for event in events]


async def stats(config: Config, channel: str | None) -> list[str]:
    """Totals, and the most talkative. Raises ConfigError and StorageError."""
    network, name = place(channel)
    async with _log(config) as log:
        found = await log.stats(Query(scope=PUBLIC, network=network, channel=name), top=10)
    lines = [f"{found.lines} lines by {found.people} people"]
    if found.first and found.last:
        lines.append(f"{stamp(found.first)} to {stamp(found.last)} (UTC)")
    return [*lines, *(harmless(f"{count:8} {nick}") for nick, count in found.top)]


@asynccontextmanager
async def _log(config: Config) -> AsyncIterator[ChatLog]:
    path = log_path(config)
    if not path.exists():
        raise Unavailable(f"{path}: there is no log yet; `terrarium up` begins one")
    async with Database.opened(path) as database:
        yield ChatLog(database)


def place(channel: str | None) -> tuple[str | None, str | None]:
    """The network and the name in "network/#name" or "#name"; None for what is not said."""
    if channel is None:
        return None, None
    network, slash, name = channel.partition("/")
    return (network, name) if slash else (None, channel)
