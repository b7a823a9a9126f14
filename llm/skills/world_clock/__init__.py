"""World clock: the current time and date in any time zone, and date arithmetic."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field

from llm.skills.hint import HintContext, WorkedOut
from llm.skills.world_clock.clocks import time_answer
from llm.skills.world_clock.dates import date_answer
from llm.skills.world_clock.entities import entities_in
from llm.skills.world_clock.places import zone_name
from llm.tools.toolbox import ToolError, tool

_KINDS = frozenset({"time"})


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the answer to a question that asks only for a time, a date or a span between dates."""
    reading, zone = context.reading, context.zone
    is_read = reading is not None and reading.kind != ""
    if reading and is_read and not reading.is_one_of(_KINDS):
        return None
    found = entities_in(question, zone)
    is_clear = found and (found.wishes - {"", "past"} or (found.clock and found.places))
    if found is None or not (is_read or is_clear):
        return None
    try:
        said = time_answer(found, context.now, zone)
        said = said or date_answer(found, context.now.astimezone(zone).date())
    except (ValueError, OverflowError):  # "31 february", "in 9999 years"
        return None
    return WorkedOut(said, is_whole=True) if said else None


@tool(reads=True)
async def current_time(
    zone: Annotated[
        str, Field(max_length=60, description='IANA zone or a large city: "Europe/Vienna", "Tokyo"')
    ] = "UTC",
) -> str:
    """Tell the date and time now, in a time zone."""
    found = zone_name(zone)
    if found is None:
        raise ToolError(f"there is no zone {zone}; write it as Area/City")
    return f"{datetime.now(ZoneInfo(found)):%A %Y-%m-%d %H:%M %Z}"


@tool(reads=True)
async def days_between(first: date, second: date) -> int:
    """Count the days from one date to another; dates are YYYY-MM-DD."""
    return (second - first).days
