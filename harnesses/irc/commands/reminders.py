"""Commands that set, list and cancel reminders."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harnesses.irc.policy.requests import CommandRequest, PrivateReply, Reply
from harnesses.irc.services import BotServices
from llm.reading.times import EXAMPLE_TIMES, NotUnderstood

_ME = re.compile(r"\A(?:me|mich)\b[\s,:]*", re.IGNORECASE)  # as in "remind me", also in German


class ReminderCommands:
    """The commands."""

    def __init__(self, services: BotServices) -> None:
        self._services = services

    async def remind(self, request: CommandRequest) -> Reply:
        """remind WHEN TEXT: tell me TEXT then (10m, tomorrow at 9, every monday at 9)"""
        return await self._add(request, _ME.sub("", request.words, count=1), asks=False)

    async def schedule(self, request: CommandRequest) -> Reply:
        """schedule WHEN QUESTION: ask me QUESTION then, in your name (every monday at 9 sum up the
        week here); .reminders lists and cancels"""
        if request.who.bridged:
            return PrivateReply("People who speak through a relay cannot schedule questions.")
        return await self._add(request, request.words, asks=True)

    async def reminders(self, request: CommandRequest) -> Reply:
        """reminders [cancel NUMBER|WORDS|all]: what you are to remind me of; cancel some"""
        reminder_service, requester = self._services.medium.remind, request.requester
        match request.words.lower().split():
            case []:
                return PrivateReply(await reminder_service.list_text(requester))
            case ["cancel", number] if number.isdecimal() and len(number) < 16:
                cancelled = await reminder_service.cancel(requester, int(number))
                return PrivateReply(
                    "Cancelled." if cancelled else f"You have no reminder {number}."
                )
            case ["cancel", *words] if words:
                texts = await reminder_service.cancel_own(requester, " ".join(words))
                return PrivateReply(_cancel_reply(texts, " ".join(words)))
            case _:
                prefix = self._services.prefix(request.place)
                return PrivateReply(
                    f"Write {prefix}reminders, or: {prefix}reminders cancel NUMBER."
                )

    async def _add(self, request: CommandRequest, words: str, *, asks: bool) -> Reply:
        reminder_service, requester = self._services.medium.remind, request.requester
        if not words:
            example = f"I understand times like these: {EXAMPLE_TIMES}."
            return PrivateReply(f"When, and {'what' if asks else 'what about'}? {example}")
        try:
            time, text = await reminder_service.parse_time(requester, words)
            return await reminder_service.add(requester, time, text, asks=asks)
        except NotUnderstood as error:
            return PrivateReply(str(error))


def _cancel_reply(texts: Sequence[str] | None, words: str) -> str:
    """Return the reply for cancelled reminders; None: several match, none is cancelled."""
    if texts is None:
        return f"Several of your reminders fit {words}: cancel one by its number."
    if not texts:
        return "You have no such reminder." if words != "all" else "You have no reminders."
    return f"Cancelled: {texts[0]}" if len(texts) == 1 else f"Cancelled: {len(texts)} reminders."
