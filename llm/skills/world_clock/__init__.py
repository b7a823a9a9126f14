"""World clock: the current time and date in any time zone, and date arithmetic."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import Field

from llm.reading.question_text import without_courtesies
from llm.skills.hint import HintContext, WorkedOut
from llm.skills.world_clock.clocks import clock_answer, time_there
from llm.skills.world_clock.dates import date_answer
from llm.skills.world_clock.places import zone_of
from llm.tools.toolbox import ToolError, tool


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the answer to a question that asks only for a time, a date or a span between dates."""
    asked = without_courtesies(question)
    said = clock_answer(asked, context.now, context.zone)
    said = said or date_answer(asked, context.now.astimezone(context.zone).date())
    return WorkedOut(said, is_whole=True) if said else None


@tool(reads=True)
async def current_time(
    zone: Annotated[
        str, Field(max_length=60, description='IANA zone or a large city: "Europe/Vienna", "Tokyo"')
    ] = "UTC",
) -> str:
    """Tell the date and time now, in a time zone."""
    found = zone_of(zone)
    if found is None:
        raise ToolError(f"there is no zone {zone}; write it as Area/City")
    return time_there(datetime.now(UTC), found)


@tool(reads=True)
async def days_between(first: date, second: date) -> int:
    """Count the days from one date to another; dates are YYYY-MM-DD."""
    return (second - first).days
