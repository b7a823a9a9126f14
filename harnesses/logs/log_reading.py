"""What `terrarium logs` shows of the chat log: public channels only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from harnesses.core.terminal import strip_control_chars
from llm.messages.log_format import render_line, stamp
from storage.chat_log.event import PUBLIC
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.log import ChatLog, Query
from storage.search.models import Order, SearchQuery
from storage.settings import log_path
from terrarium.config import Config


async def search(
    config: Config, text: str, channel: str | None, nick: str | None, hours: float, limit: int
) -> list[str]:
    """The newest `limit` lines that a search finds, oldest first, and how far it came if time was
    over before.

    `channel` is "#name" or "network/#name"; `hours` is how far back, 0 for everything.
    Raises ConfigError and StorageError.
    """
    network, name = parse_channel(channel)
    within = Query(
        scope=PUBLIC,
        network=network,
        channel=name,
        nick=nick,
        since=datetime.now(UTC) - timedelta(hours=hours) if hours else None,
        limit=limit,
    )
    async with _log(config) as log:
        page = await log.search(SearchQuery(text=text, within=within, order=Order.TIME))
    events = [hit.event for hit in reversed(page.hits)]
    found = [
        strip_control_chars(f"{event.network}/{event.channel} {render_line(event)}")
        for event in events
    ]
    if page.searched_back_to is not None:
        found.append(f"(searched back to {stamp(page.searched_back_to)} only)")
    return found


async def stats(config: Config, channel: str | None) -> list[str]:
    """Totals, and the most talkative. Raises ConfigError and StorageError."""
    network, name = parse_channel(channel)
    async with _log(config) as log:
        found = await log.stats(Query(scope=PUBLIC, network=network, channel=name), top=10)
    lines = [f"{found.lines} lines by {found.people} people"]
    if found.first and found.last:
        lines.append(f"{stamp(found.first)} to {stamp(found.last)} (UTC)")
    return [*lines, *(strip_control_chars(f"{count:8} {nick}") for nick, count in found.top)]


@asynccontextmanager
async def _log(config: Config) -> AsyncIterator[ChatLog]:
    path = log_path(config)
    if not path.exists():
        raise Unavailable(f"{path}: there is no log yet; `terrarium up` begins one")
    async with Database.open(path) as database:
        yield ChatLog(database)


def parse_channel(channel: str | None) -> tuple[str | None, str | None]:
    """The network and the name in "network/#name" or "#name"; None for what is not said."""
    if channel is None:
        return None, None
    network, slash, name = channel.partition("/")
    return (network, name) if slash else (None, channel)
