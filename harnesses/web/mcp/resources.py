"""MCP resources: the days of channels, and single lines with their neighbours."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError

from harnesses.web.queries import in_place, page_of
from llm.messages.message import render_line
from storage.chat_log import statistics
from storage.chat_log.event import Event, Place, Scope
from storage.log import ChatLog

_DAY_PREFIX = "terrarium://day/"
_LINE_PREFIX = "terrarium://line/"
_MAX_CHANNELS = 20
_LISTED_DAYS = 7  # listed for each channel
_MAX_LINES = 2_000  # of a day
_NEIGHBOURS = 10  # neighbours of a line, before it and after it

_TEMPLATES = [
    types.ResourceTemplate(
        name="day",
        uri_template=f"{_DAY_PREFIX}{{network}}/{{channel}}/{{date}}",
        description="What was said on a channel on a day in UTC, such as"
        f" {_DAY_PREFIX}irc/%23terrarium/2026-03-01: write # as %23.",
        mime_type="text/plain",
    ),
    types.ResourceTemplate(
        name="line",
        uri_template=f"{_LINE_PREFIX}{{id}}",
        description=f"A line of the log by its id, with {_NEIGHBOURS} before and after it.",
        mime_type="text/plain",
    ),
]


async def list_templates(*_: object) -> types.ListResourceTemplatesResult:
    """Return the forms of the addresses of all resources."""
    return types.ListResourceTemplatesResult(resource_templates=_TEMPLATES)


async def list_days(log: ChatLog, scope: Scope) -> types.ListResourcesResult:
    """Return the last days with lines of each of the most recently active channels, newest first;
    the templates cover all other resources."""
    found = []
    for channel in (await log.read(statistics.channels, scope))[:_MAX_CHANNELS]:
        place = channel.place
        names = (quote(each, safe="") for each in (place.network, place.channel))
        prefix = _DAY_PREFIX + "/".join(names)
        days = await log.read(statistics.days, in_place(scope, place))
        found += [
            types.Resource(
                name=f"{place} {day.date}",
                uri=f"{prefix}/{day.date}",
                description=f"{day.lines} lines",
                mime_type="text/plain",
            )
            for day in days[: -_LISTED_DAYS - 1 : -1]
        ]
    return types.ListResourcesResult(resources=found)


async def read_resource(log: ChatLog, scope: Scope, uri: str) -> types.ReadResourceResult:
    """Return a resource as text, without lines of people who have opted out.

    Raises MCPError alike for one that does not exist and for one out of scope, so that nobody
    learns which channels there are.
    """
    events: list[Event] = []
    more = False
    if uri.startswith(_DAY_PREFIX):
        network, _, rest = uri.removeprefix(_DAY_PREFIX).partition("/")
        channel, _, day = rest.rpartition("/")
        query, within = in_place(scope, Place(unquote(network), unquote(channel))), None
        with suppress(ValueError, OverflowError):  # no date
            begin = datetime.combine(date.fromisoformat(day), time(), UTC)
            within = replace(query, since=begin, until=begin + timedelta(days=1))
        if within:
            events, more = await page_of(log, within, _MAX_LINES, newest=False)
    elif uri.startswith(_LINE_PREFIX):
        number = uri.removeprefix(_LINE_PREFIX)
        # `int` accepts more: digits of other scripts, and numbers too large for the database.
        if number.isascii() and number.isdecimal() and len(number) < 16:
            around = await log.context(scope, int(number), before=_NEIGHBOURS, after=_NEIGHBOURS)
            events = [*around.before, around.event, *around.after] if around else []
    if not events:
        raise MCPError(
            types.INVALID_PARAMS,
            f"no such resource: write {_TEMPLATES[0].uri_template} or {_TEMPLATES[1].uri_template}",
        )
    shown = await log.shown_to_model(events)
    lines = [f"{render_line(event)}  (line {event.id})" for event in shown]
    if more:
        lines.append(f"(more: read_log with after_id {events[-1].id})")
    text = types.TextResourceContents(
        uri=uri, mime_type="text/plain", text="".join(f"{line}\n" for line in lines)
    )
    return types.ReadResourceResult(contents=[text])
