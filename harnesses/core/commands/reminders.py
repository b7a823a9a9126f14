"""Commands whose work is done later: reminders, scheduled questions and research."""

from __future__ import annotations

import re
from itertools import islice

from harnesses.core.commands.request import MediumCommands, PrivateReply, R, Reply
from harnesses.core.jobs import TaskAction, act, list_tasks, open_stores
from harnesses.core.tendril.research import ResearchRequest
from llm.reading.times import EXAMPLE_TIMES, NotUnderstood

_ACTIONS = {action.partition(" ")[0]: action for action in TaskAction}
_DONE = {
    TaskAction.RUN: "Within half a minute",
    TaskAction.PAUSE: "Paused",
    TaskAction.RESUME: "Resumed",
    TaskAction.RETRY: "Queued again",
    TaskAction.CANCEL: "Cancelled",
}
_MOST_LISTED = 20  # jobs
_ME = re.compile(r"\A(?:me|mich)\b[\s,:]*", re.IGNORECASE)  # as in "remind me", also in German


class ReminderCommands(MediumCommands[R]):
    """The commands about reminders and jobs."""

    async def remind(self, request: R) -> Reply:
        """remind WHEN TEXT: remind me of TEXT then (10m, tomorrow at 9, every monday at 9)"""
        return await self._add(request, _ME.sub("", request.words, count=1), asks=False)

    async def schedule(self, request: R) -> Reply:
        """schedule WHEN QUESTION: ask me QUESTION then, in your name (every monday at 9 sum up the
        week here); .reminders lists and cancels"""
        if request.who.bridged:
            return PrivateReply("People who speak through a relay cannot schedule questions.")
        return await self._add(request, request.words, asks=True)

    async def reminders(self, request: R) -> Reply:
        """reminders [cancel NUMBER|WORDS|all]: list my reminders, or cancel some"""
        reminder_service, requester = self._medium.tendril.remind, request.requester
        match request.words.lower().split():
            case []:
                return PrivateReply(await reminder_service.list_text(requester))
            case ["cancel", number] if number.isdecimal() and len(number) < 16:
                cancelled = await reminder_service.cancel(requester, int(number))
                return PrivateReply(
                    "Cancelled." if cancelled else f"You have no reminder {number}."
                )
            case ["cancel", *words]:
                asked = " ".join(words)  # without any, the only one is meant
                texts = await reminder_service.cancel_own(requester, asked)
                if texts is None and not asked:
                    listed = await reminder_service.list_text(requester)
                    reply = f"Which one? Cancel it by its number.\n{listed}"
                elif texts is None:
                    reply = f"Several of your reminders match {asked}: cancel one by its number."
                elif not texts:
                    is_named = asked not in ("", "all")
                    reply = f"You have no {'such reminder' if is_named else 'reminders'}."
                elif len(texts) == 1:
                    reply = f"Cancelled: {texts[0]}"
                else:
                    reply = f"Cancelled: {len(texts)} reminders."
                return PrivateReply(reply)
            case _:
                prefix = self._medium.prefix(request.place)
                return PrivateReply(
                    f"Write {prefix}reminders, or: {prefix}reminders cancel NUMBER."
                )

    async def jobs(self, request: R) -> Reply:
        """jobs [run|pause|resume|retry|cancel NUMBER]: list my reminders and scheduled questions,
        with their state, or do that to one; admins: also those of the channels, and what has
        failed"""
        tendril, is_admin = self._medium.tendril, request.admin
        verb, _, wanted = request.words.strip().partition(" ")
        async with open_stores(tendril.config, tendril.database, tendril.log.database) as stores:
            tasks = await list_tasks(stores, [request.requester.owner], is_admin=is_admin)
            named = {
                task.number if task.is_own else f"{task.store}/{task.name}": task for task in tasks
            }
            if not verb:
                lines = [f"{name}: {task}" for name, task in islice(named.items(), _MOST_LISTED)]
                if (more := len(named) - _MOST_LISTED) > 0:
                    lines.append(f"and {more} more; the web page /jobs lists all")
                return PrivateReply("\n".join(lines) or "Nothing of yours is waiting.")
            action = _ACTIONS.get(verb.lower())
            if action is None:
                prefix = self._medium.prefix(request.place)
                return PrivateReply(f"Write {prefix}jobs, or: {prefix}jobs pause NUMBER.")
            task = named.get(wanted.strip())
            if task and await act(stores, task, action, tendril.clock.now()):
                return PrivateReply(f"{_DONE[action]}: {task.text}")
        return PrivateReply(f"You have no job {wanted[:30]} to {verb}.")

    async def _add(self, request: R, words: str, *, asks: bool) -> Reply:
        reminder_service, requester = self._medium.tendril.remind, request.requester
        if not words:
            example = f"I understand times like these: {EXAMPLE_TIMES}."
            return PrivateReply(f"When, and {'what' if asks else 'what about'}? {example}")
        try:
            time, text = await reminder_service.parse_time(requester, words)
            return await reminder_service.add(requester, time, text, asks=asks)
        except NotUnderstood as error:
            return PrivateReply(str(error))


class ResearchCommands(MediumCommands[R]):
    """The command that starts a research."""

    async def research(self, request: R) -> Reply:
        """research QUESTION|stop: take minutes to search the log, and pages where I may, and write
        a report with the lines that say it; alone: how far I am"""
        medium, service = self._medium, self._medium.tendril.research
        asked = ResearchRequest(
            question=request.words,
            requester=request.requester,
            payer=medium.payer(request),
            scope=medium.readable_scope(request),
            address=medium.web_address,
            prefix=medium.prefix(request.place),
            nicks=medium.nicks(request),
        )
        match request.words.lower().split():
            case []:
                return PrivateReply(await service.list_text(asked))
            case ["stop"]:
                place = await service.stop(asked)
                if place == request.place:
                    return "Stopped."
                return PrivateReply("Stopped." if place else "No research is running.")
        if not medium.keeps(request):
            return PrivateReply("Nothing you say here is stored, so I cannot write a report.")
        return await service.start(asked)
