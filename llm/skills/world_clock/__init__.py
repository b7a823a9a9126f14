"""The time and the date, here and elsewhere."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import cache
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from llm.tools import ToolError, tool

_ASKED = re.compile(
    r"\bwhat(?:'?s| is)? (?:the )?(?:time|date|day)\b|\bcurrent (?:time|date)\b|\bwhich day\b"
    r"|\btime (?:is it|in)\b|\btoday'?s date\b|\bwhat day is\b",
    re.IGNORECASE,
)
_PLACE = re.compile(r"\b(?:in|at|for)\s+([A-Za-z][\w/+ -]{1,40})", re.IGNORECASE)


async def hint(question: str) -> str | None:
    """The time now, where the question asks for it."""
    if not _ASKED.search(question):
        return None
    now = datetime.now(UTC)
    lines = [f"now: {_shown(now)}"]
    if (place := _PLACE.search(question)) and (zone := _named_in(place[1])):
        lines.append(f"in {zone}: {_shown(now.astimezone(ZoneInfo(zone)))}")
    return "\n".join(lines)


@tool(reads=True)
async def current_time(
    zone: Annotated[
        str, Field(max_length=60, description='IANA zone or a large city: "Europe/Vienna", "Tokyo"')
    ] = "UTC",
) -> str:
    """Tell the date and time now, in a time zone."""
    found = _zones().get(_key(zone))
    if found is None:
        raise ToolError(f"there is no zone {zone}; write it as Area/City")
    return _shown(datetime.now(ZoneInfo(found)))


@tool(reads=True)
async def days_between(first: date, second: date) -> int:
    """Count the days from one date to another; dates are YYYY-MM-DD."""
    return (second - first).days


def _shown(time: datetime) -> str:
    return f"{time:%A %Y-%m-%d %H:%M} {time.tzname()}"


def _named_in(words: str) -> str | None:
    """The zone that the first of some words name: as many of them as make a name."""
    parts = words.split()
    for length in range(min(4, len(parts)), 0, -1):
        if zone := _zones().get(_key(" ".join(parts[:length]))):
            return zone
    return None


def _key(name: str) -> str:
    return name.strip().strip("?.!,").lower().replace(" ", "_")


@cache
def _zones() -> dict[str, str]:
    """Zones by their whole name and by their city, in lower case."""
    names = sorted(available_timezones(), reverse=True)
    cities = {name.rpartition("/")[2].lower(): name for name in names if "/" in name}
    return cities | {name.lower(): name for name in names}
