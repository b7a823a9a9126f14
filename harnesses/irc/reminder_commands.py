"""Reminders as people ask for them: by command, or in their own words by way of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Protocol

from pydantic import Field

from harnesses.irc.reminders import LONGEST, Reminding
from harnesses.irc.request import Command, Notice, Request
from llm.tools import ToolError, tool
from llm.untrusted import neutral
from llm.when import FORMS, NotUnderstood

_ME = re.compile(r"(?:me|mich)\b[\s,:]*", re.IGNORECASE)


class Calendar(Protocol):
    """What these commands need of the tendril."""

    reminding: Reminding

    def prefix(self, request: Request) -> str:
        """What a command begins with where `request` was given."""


class ReminderCommands:
    """The commands by name."""

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self.known: Mapping[str, Command] = {"remind": self.remind, "reminders": self.reminders}

    async def remind(self, request: Request) -> str:
        """remind WHEN TEXT: tell me TEXT then (10m, tomorrow at 9, every monday at 9)"""
        reminding = self._calendar.reminding
        words = _ME.sub("", request.words, count=1)
        try:
            if not words:
                raise NotUnderstood(f"When, and of what? I understand times like these: {FORMS}.")
            time, text = await reminding.understood(request, words)
            return await reminding.add(request, time, text)
        except NotUnderstood as error:
            return Notice(str(error))

    async def reminders(self, request: Request) -> str:
        """reminders [cancel NUMBER|WORDS|all]: what you are to remind me of; cancel some"""
        reminding = self._calendar.reminding
        match request.words.lower().split():
            case []:
                return Notice(await reminding.listed(request))
            case ["cancel", number] if number.isdecimal() and len(number) < 16:
                cancelled = await reminding.cancel(request, int(number))
                return Notice("Cancelled." if cancelled else f"You have no reminder {number}.")
            case ["cancel", *words] if words:
                count = await reminding.cancel_own(request, " ".join(words))
                return Notice(_cancelled(count, " ".join(words)))
            case _:
                prefix = self._calendar.prefix(request)
                return Notice(f"Write {prefix}reminders, or: {prefix}reminders cancel NUMBER.")


def _cancelled(count: int | None, words: str) -> str:
    """What to say when so many were cancelled; None: several fit, and none was."""
    if count is None:
        return f"Several of your reminders fit {words}: cancel one by its number."
    if count == 0:
        return f"You have no reminder {words}." if words != "all" else "You have no reminders."
    return "Cancelled." if count == 1 else f"Cancelled: {count} reminders."


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
