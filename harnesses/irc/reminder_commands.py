"""Reminders as people ask for them: by command, or in their own words by way of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Protocol

from pydantic import Field

from harnesses.irc.reminders import LONGEST, Reminding
from harnesses.irc.request import Command, Notice, Request
from llm.tools import ToolError, tool
from llm.untrusted import neutral
from llm.when import FORMS, NotUnderstood


class Calendar(Protocol):
    """What these commands need of the tendril."""

    reminding: Reminding


class ReminderCommands:
    """The commands by name."""

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self.known: Mapping[str, Command] = {"remind": self.remind, "reminders": self.reminders}

    async def remind(self, request: Request) -> str:
        """remind WHEN TEXT: tell me TEXT then (in 20 minutes, at 18:00, every monday at 9)"""
        reminding = self._calendar.reminding
        try:
            time, text = await reminding.understood(request, request.words.removeprefix("me "))
            return await reminding.add(request, time, text)
        except NotUnderstood as error:
            return Notice(str(error))

    async def reminders(self, request: Request) -> str:
        """reminders [cancel NUMBER]: what you are to remind me of; cancel one"""
        reminding = self._calendar.reminding
        match request.words.lower().split():
            case []:
                return Notice(await reminding.listed(request))
            case ["cancel", number] if number.isdecimal() and len(number) < 16:
                cancelled = await reminding.cancel(request, int(number))
                return Notice("Cancelled." if cancelled else f"You have no reminder {number}.")
            case _:
                return Notice("Write reminders, or: reminders cancel NUMBER.")


class ReminderTools:
    """The same for the model, in the name of whoever asks, and of nobody else."""

    def __init__(self, reminding: Reminding, request: Request) -> None:
        self._reminding, self._request = reminding, request

    @tool(effect=True)
    async def remind(
        self,
        when: Annotated[str, Field(max_length=100, description=f"one of: {FORMS}")],
        text: Annotated[str, Field(max_length=LONGEST, description="what to tell them then")],
    ) -> str:
        """Remind the person who asks you of something later, here."""
        try:
            time, rest = await self._reminding.understood(self._request, when)
            if rest:
                raise NotUnderstood(f"{rest!r} is no part of a time; use one of: {FORMS}")
            return await self._reminding.add(self._request, time, text)
        except NotUnderstood as error:
            raise ToolError(str(error)) from error

    @tool(reads=True)
    async def reminders(self) -> str:
        """List the reminders of the person who asks you, with their numbers."""
        return neutral(await self._reminding.listed(self._request))

    @tool(effect=True)
    async def cancel_reminder(self, number: Annotated[int, Field(ge=1, lt=2**53)]) -> str:
        """Cancel a reminder of the person who asks you, by its number."""
        if not await self._reminding.cancel(self._request, number):
            raise ToolError(f"they have no reminder {number}")
        return "cancelled"
