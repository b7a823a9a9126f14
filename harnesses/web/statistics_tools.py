"""The tool about the statistics of the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from harnesses.core.text import counted
from llm.messages.message import escape_tags
from llm.tools.toolbox import tool
from storage.chat_log import statistics
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Scope
from storage.chat_log.opt_outs import person_of, rules
from storage.log import ChatLog, Query

_TOP = 10  # people
_HOURS = 3  # hours of the day in which most is said


@dataclass(frozen=True, slots=True)
class StatisticsTools:
    """The tool over the part of a `log` that `scope` covers."""

    log: ChatLog
    scope: Scope

    @tool(reads=True)
    async def statistics(
        self,
        channel: Annotated[str, Field(max_length=200, description="only this channel")] = "",
        days: Annotated[int, Field(ge=0, le=36_500, description="only the last; 0: all")] = 0,
    ) -> str:
        """Tell how much was said on the channels that the person who asks may read, by whom most,
        and at which hours."""
        query = Query(scope=self.scope).in_channel(ChannelName.parse(channel))
        if days:
            query = replace(query, since=datetime.now(UTC) - timedelta(days=days))
        found = await self.log.read(statistics.stats, query, _TOP)
        if not found.lines or not found.first or not found.last:
            return "nothing was said there"
        # The counters know no opt-outs.
        gone = {nick for _, nick in (await self.log.read(rules)).nicks}
        people = (
            f"{escape_tags(nick)} {lines:,}"
            for nick, lines in found.top
            if person_of(nick) not in gone
        )
        told = [
            f"{counted(found.lines, 'line')} by {counted(found.people, 'nick')},"
            f" {found.first:%Y-%m-%d} to {found.last:%Y-%m-%d}",
            f"most by: {', '.join(people)}",
        ]
        if not days:  # the hours are counted for all time
            week = await self.log.read(statistics.heat_map, query)
            hours = [sum(day[hour] for day in week) for hour in range(24)]
            best = sorted(range(24), key=lambda hour: -hours[hour])[:_HOURS]
            told.append(f"most at (UTC): {', '.join(f'{hour:02}:00' for hour in best)}")
        return "\n".join(told)
