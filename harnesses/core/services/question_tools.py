"""The tools that a question brings along, whichever door it came through.

One function makes the list, so that the same tools are offered everywhere, and in the same order to
everybody in a place: rights are checked when a tool is called. Left out is only what cannot work
there at all, such as reminders where nobody can be told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Annotated

from pydantic import Field

from harnesses.core.permalinks import short_link
from harnesses.core.services.reminders import (
    FindOther,
    ReminderService,
    ReminderTools,
    Requester,
    ScheduleTools,
    nobody_else,
)
from llm.skills.registry import TeachingTools
from llm.tools.log_search import LogTools
from llm.tools.toolbox import ToolError, tool
from storage.chat_log.event import Event, PendingEvent, Place
from storage.memory.taught_skills import SkillTable
from storage.queues.pastes import Pastes

_MAX_PASTE_LENGTH = 50_000  # characters


class PasteTools:
    """The tool that stores texts for `who` in a place, as answers to `question`; nothing is stored
    if that is not logged.

    `address` is the base URL of the web pages, None where nobody could open one.
    """

    def __init__(
        self,
        pastes: Pastes,
        place: Place,
        who: str,
        lifetime: timedelta,
        address: str | None,
        question: PendingEvent,
    ) -> None:
        self._pastes, self._place, self._who, self._lifetime = pastes, place, who, lifetime
        self._address, self._question = address, question

    @tool(effect=True)
    async def paste(
        self, text: Annotated[str, Field(min_length=1, max_length=_MAX_PASTE_LENGTH)]
    ) -> str:
        """Put a long text, such as a file or a table in Markdown, behind a link for your answer."""
        if not self._address:
            raise ToolError("the web pages do not run, so nobody could open it; answer instead")
        if self._question.event is None:
            raise ToolError("nothing of this question may be kept; answer instead")
        asked = await self._question.wait_visible()
        key = await self._pastes.add(self._place, self._who, text, (), self._lifetime, [asked])
        return f"{self._address}/paste/{key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The place where a question is asked, and who asks it, as far as its tools depend on them.

    - `log` reads what the asker may read there; `address` is the base URL of the web pages for
      people there, None if they have none.
    - `requester` is the asker where reminders can be said, `find_other` finds others who are there.
    - `may_schedule`: the asker may have questions asked later in their name; None where nobody can.
    - `room` and `who`: the room for which people can teach the bot skills, and the asker; "" where
      nobody can.
    - `pastes` stores long texts, None where answers of any length are shown.
    """

    log: LogTools
    address: str | None = None
    requester: Requester | None = None
    find_other: FindOther = nobody_else
    may_schedule: bool | None = None
    room: str = ""
    who: str = ""
    pastes: PasteTools | None = None


def question_tools(
    door: Door,
    remind: ReminderService,
    skills: SkillTable,
    now: Callable[[], datetime],
    zone: tzinfo,
) -> list[object]:
    """Return the owners of the tools of a question: the log with times in a `zone`, reminders and
    scheduled questions, lessons, pastes."""

    def link(event: Event) -> str | None:
        is_shown = door.address and not event.private
        return f"{door.address}{short_link(event)}" if is_shown else None

    tools: list[object] = [replace(door.log, link=link, zone=zone)]
    if door.requester:
        tools.append(ReminderTools(remind, door.requester, door.find_other))
        if (may := door.may_schedule) is not None:
            tools.append(ScheduleTools(remind, door.requester, may_schedule=may))
    if door.room:
        tools.append(TeachingTools(skills, door.room, door.who, now))
    if door.pastes:
        tools.append(door.pastes)
    return tools
