"""The tools that a question brings along, whichever door it came through.

One function makes the list, so that the same tools are offered everywhere, and in the same order to
everybody in a place: rights are checked when a tool is called. Left out is only what cannot work
there at all, such as reminders where nobody can be told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Annotated

from pydantic import Field

from harnesses.core.addresses import short_link
from harnesses.core.services.reminders import MAX_TEXT, ReminderService, Requester
from llm.messages.message import escape_tags
from llm.reading.times import EXAMPLE_TIMES, NotUnderstood, ResolvedTime
from llm.skills.registry import TeachingTools
from llm.tools.consent import to_cancel, to_remind, to_schedule
from llm.tools.log_search import LogTools
from llm.tools.toolbox import ToolError, tool
from storage.chat_log.event import Event, PendingEvent, Place
from storage.memory.skills import SkillTable
from storage.queues.pastes import Pastes

MAX_OTHERS = 5
"""The most people that one call can have reminded."""

_MAX_PASTE_LENGTH = 50_000  # characters

Nick = Annotated[str, Field(min_length=1, max_length=64)]

WebAddress = Callable[[], str | None]
"""Returns the base URL of the web pages, None where nobody could open one."""


@dataclass(frozen=True, slots=True)
class PasteTools:
    """The tool that stores texts for `who` in a place, as answers to `question`; nothing is stored
    if that is not logged."""

    pastes: Pastes
    place: Place
    who: str
    lifetime: timedelta
    address: WebAddress
    question: PendingEvent

    @tool(effect=True)
    async def paste(
        self, text: Annotated[str, Field(min_length=1, max_length=_MAX_PASTE_LENGTH)]
    ) -> str:
        """Put a long text, such as a file or a table in Markdown, behind a link for your answer."""
        address = self.address()
        if not address:
            raise ToolError("the web pages do not run, so nobody could open it; answer instead")
        if self.question.event is None:
            raise ToolError("nothing of this question may be kept; answer instead")
        asked = await self.question.wait_visible()
        key = await self.pastes.add(self.place, self.who, text, (), self.lifetime, [asked])
        return f"{address}/paste/{key}"


FindOther = Callable[[str], Awaitable[Requester | None]]
"""Finds somebody who is here now by their nick, to be reminded of what the asker wants."""


async def nobody_else(nick: str) -> Requester | None:
    """Find nobody: where each person is alone, or unknown."""
    return None


@dataclass(frozen=True, slots=True)
class ReminderTools:
    """The reminder tools of a model, limited to one requester and those who `find_other` finds."""

    service: ReminderService
    requester: Requester
    find_other: FindOther = nobody_else

    @tool(effect=True, asked=to_remind)
    async def remind(
        self,
        when: Annotated[str, Field(max_length=100, description=f"one of: {EXAMPLE_TIMES}")],
        text: Annotated[str, Field(max_length=MAX_TEXT, description="what to tell them then")],
        who: Annotated[
            tuple[Nick, ...],
            Field(max_length=MAX_OTHERS, description="people here; if left out, who asks"),
        ] = (),
    ) -> str:
        """Remind the person who asks you, or others who are here, of something later, here. Others
        are told who wanted it, and only once."""
        service, asker = self.service, self.requester
        own = {"me", asker.owner.nick.casefold()}
        try:
            time = await _parse(service, asker, when)
            others = []
            for nick in who:
                if nick.casefold() not in own:
                    if (found := await self.find_other(nick)) is None:
                        raise NotUnderstood(f"{nick!r} is nobody who is here and can be reminded.")
                    others.append(found)
            lines = [await service.add_for(other, asker, time, text) for other in others]
            if len(others) < len(who) or not who:
                confirmed = await service.add(asker, time, text)
                lines.append(f"{asker.owner.nick}: {confirmed}" if others else confirmed)
            return "\n".join(lines)
        except NotUnderstood as error:
            raise ToolError(str(error)) from error

    @tool(reads=True)
    async def reminders(self) -> str:
        """List the reminders and scheduled questions of the person who asks you, with their
        numbers."""
        return escape_tags(await self.service.list_text(self.requester))

    @tool(effect=True, asked=to_cancel)
    async def cancel_reminder(self, number: Annotated[int, Field(ge=1, lt=2**53)]) -> str:
        """Cancel a reminder or scheduled question of the person who asks you, by its number, which
        `reminders` tells."""
        if not await self.service.cancel(self.requester, number):
            raise ToolError(f"they have no reminder {number}")
        return "cancelled"


@dataclass(frozen=True, slots=True)
class ScheduleTools:
    """The tool that schedules questions of one requester, if they may schedule any."""

    service: ReminderService
    requester: Requester
    may_schedule: bool

    @tool(effect=True, asked=to_schedule)
    async def schedule(
        self,
        when: Annotated[
            str, Field(max_length=100, description="as for `remind`, such as every monday at 9")
        ],
        question: Annotated[
            str,
            Field(
                min_length=3,
                max_length=MAX_TEXT,
                description="a part of what they have just written, word for word",
            ),
        ],
    ) -> str:
        """Have a question or task of the person who asks you done here later, once or each time, in
        their name."""
        if not self.may_schedule:
            raise ToolError("not done: whoever speaks through a relay cannot schedule questions")
        try:
            time = await _parse(self.service, self.requester, when)
            return await self.service.add(self.requester, time, question, asks=True)
        except NotUnderstood as error:
            raise ToolError(str(error)) from error


async def _parse(service: ReminderService, requester: Requester, when: str) -> ResolvedTime:
    """Parse a text that is nothing but a time. Raises NotUnderstood."""
    time, rest = await service.parse_time(requester, when)
    if rest:
        raise NotUnderstood(f"{rest!r} is no part of a time; use one of: {EXAMPLE_TIMES}")
    return time


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The place where a question is asked, and who asks it, as far as its tools depend on them.

    - `log` reads what the asker may read there; `address` returns the base URL of the web pages
      for people there.
    - `requester` is the asker where reminders can be said, `find_other` finds others who are there.
    - `may_schedule`: the asker may have questions asked later in their name; None where nobody can.
    - `room` and `who`: the room for which people can teach the bot skills, and the asker; "" where
      nobody can.
    - `pastes` stores long texts, None where answers of any length are shown.
    """

    log: LogTools
    address: WebAddress = lambda: None
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
        address = None if event.private else door.address()
        return f"{address}{short_link(event)}" if address else None

    tools: list[object] = [replace(door.log, link=link, zone=zone)]
    if door.requester:
        tools.append(ReminderTools(remind, door.requester, door.find_other))
        if (may := door.may_schedule) is not None:
            tools.append(ScheduleTools(remind, door.requester, may))
    if door.room:
        tools.append(TeachingTools(skills, door.room, door.who, now))
    if door.pastes:
        tools.append(door.pastes)
    return tools
