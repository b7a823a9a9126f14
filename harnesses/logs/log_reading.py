"""`terrarium logs search|stats`: the public channels of the log, as lines for a terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from harnesses.core.text import counted, strip_control_chars
from harnesses.logs.maintenance import open_log
from llm.messages.message import render_line, stamp
from llm.retrieval import Retrieval
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import PUBLIC, Event
from storage.log import ChatLog, Query
from storage.search.models import Order, SearchQuery
from storage.settings import log_address
from terrarium.config import Config

_ANSWERS = 3  # lines that may answer a question


async def search(
    config: Config, text: str, channel: str | None, nick: str | None, hours: float, limit: int
) -> list[str]:
    """Return the newest `limit` lines that a search finds, oldest first, and a last line if the
    time limit ended it early. Before them are those that may answer a plain question.

    `channel` is "#name" or "network/#name"; `hours` is how far back, 0 for everything.
    Raises ConfigError and StorageError.
    """
    within = Query(
        scope=PUBLIC,
        nick=nick,
        since=datetime.now(UTC) - timedelta(hours=hours) if hours else None,
        limit=limit,
    ).in_channel(ChannelName.parse(channel))
    async with open_log(log_address(config)) as database:
        log = ChatLog(database)
        # Without the agent server: by words alone.
        answers = await Retrieval(log).answers(text, replace(within, limit=_ANSWERS))
        page = await log.search(SearchQuery(text=text, within=within, order=Order.TIME))
    found = [_line(each.event) for each in answers.passages]
    if found:
        lead = "the answer:" if answers.is_sure else "perhaps the answer:"
        found = [lead, *found, "all lines with these words:"]
    found += [_line(hit.event) for hit in reversed(page.hits)]
    if page.searched_back_to is not None:
        found.append(f"(searched back to {stamp(page.searched_back_to)} only)")
    return found


def _line(event: Event) -> str:
    return strip_control_chars(f"{event.network}/{event.channel} {render_line(event)}")


async def stats(config: Config, channel: str | None) -> list[str]:
    """Return the totals and the ten most talkative people, as lines. Raises ConfigError and
    StorageError."""
    query = Query(scope=PUBLIC).in_channel(ChannelName.parse(channel))
    async with open_log(log_address(config)) as database:
        found = await ChatLog(database).stats(query, top=10)
    lines = [f"{counted(found.lines, 'line')} by {counted(found.people, 'person', 'people')}"]
    if found.first and found.last:
        lines.append(f"{stamp(found.first)} to {stamp(found.last)} (UTC)")
    return [*lines, *(strip_control_chars(f"{count:8} {nick}") for nick, count in found.top)]
