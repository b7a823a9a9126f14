"""Research: jobs that work on a question for minutes, and leave a report with its evidence.

Each job does one step and adds the next one, so that a crash costs one step, and other jobs have
their turn in between. Reports are in the database of the log, where the web tendril shows them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from harnesses.core.services.peers import TendrilOutbox
from harnesses.core.services.reminders import Requester, SayReminder
from harnesses.core.services.shared_log import TendrilLog, room_name
from harnesses.core.tendril.preparation import Pseudonyms
from harnesses.core.tendril.resources import Resources
from harnesses.core.text import counted
from llm.client.client import RequestOptions
from llm.client.profile import Profile
from llm.messages.errors import BudgetSpent, Busy, ModelError, Unreachable
from llm.research import LogReader, Researcher
from llm.web.reader import PageReader
from storage.chat_log.event import Place, Scope, is_private
from storage.queues.jobs import Job
from storage.queues.reminders import Reminder
from storage.queues.reports import Report, ReportContent, Reports

MAX_QUESTION = 400
"""The most characters of a question."""

_STEP, _TELL = "research.step", "research.tell"
_LANE = "research"  # one step at a time, so that answers to people keep most of the model
_SHOWN_QUESTION = 80  # characters
_STOPPED = "It was stopped."
_DELIVERY_PERIOD = timedelta(days=7)  # how long we try to say that a report is done

_log = structlog.get_logger()


class ReportChanged(Exception):
    """The lines of a report were erased while a step was done, so the step is done again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResearchRequest:
    """A question for a research, by `requester`, over what `scope` covers.

    `payer` is the name whose budget is charged. Lines that begin with the command `prefix`, or
    address one of our `nicks`, are left out. The report is at `address`, the base URL of the web
    pages for the people there.
    """

    question: str
    requester: Requester
    payer: str
    scope: Scope
    address: str | None
    prefix: str
    nicks: Sequence[str]


class ResearchService:
    """The researches of one tendril; `say` says that one is done, None where nothing can be said.
    What is to be known before goes into the `outbox`. `pages` makes the reader of web pages."""

    def __init__(
        self, resources: Resources, log: TendrilLog, outbox: TendrilOutbox, say: SayReminder | None
    ) -> None:
        self._resources, self._log, self._outbox, self._say = resources, log, outbox, say
        self._reports = Reports(log.database)
        self.pages = PageReader.from_config
        data = resources.configuration.config.data
        self._pseudonyms = Pseudonyms(data, resources.name, resources.clock.now)

    def handlers(self) -> Mapping[str, Callable[[Job], Awaitable[object]]]:
        """Return the handlers of the jobs, by kind."""
        return {_STEP: self._step, _TELL: self._tell}

    async def start(self, asked: ResearchRequest) -> str:
        """Start a research; return the confirmation, or why it cannot be. Raises StorageError."""
        requester, question = asked.requester, " ".join(asked.question.split())
        if len(question) > MAX_QUESTION:
            return f"A research question can have at most {MAX_QUESTION} characters."
        if not any(map(str.isalnum, question)):
            return "What shall I find out?"
        if not asked.address:
            return (
                "A report is a web page, and my web pages are not running; please tell my operator."
            )
        line = await requester.question_event_id()
        token = await self._reports.add(
            requester.place, requester.owner, asked.payer, line, question, asked.scope
        )
        if token is None:
            known = await self._reports.of_person(asked.payer)
            if any(report.is_open for report in known):
                return "I am still working on your last one; wait for it, or stop it first."
            return "Too many people are already waiting for a report; please ask again later."
        payload = {"report": token, "prefix": asked.prefix, "nicks": list(asked.nicks)}
        payload["link"] = link = f"{asked.address}/research/{token}"
        await self._resources.jobs.add(_STEP, payload, key=f"{token}/0", lane=_LANE)
        told = "I will say so here when it is done" if self._say else "The page shows its progress"
        return f"I am on it. {told}: {link}"

    async def list_text(self, asked: ResearchRequest) -> str:
        """Return the newest reports of the requester, one in each line: on a channel those that
        they have asked for there, in private all."""
        lines, requester = [], asked.requester
        for report in await self._reports.of_person(asked.payer):
            is_here = report.place == requester.place
            if is_here or (requester.private and report.owner.is_same(requester.owner)):
                topics = report.content.topics
                done = sum(topic.is_done for topic in topics)
                at_work = f"{done} of {counted(len(topics), 'step')} done" if topics else "planned"
                state = at_work if report.is_open else "done"
                link = f" {asked.address}/research/{report.id}" if asked.address else ""
                lines.append(f"“{_short(report.question)}”: {state}{link}")
        return "\n".join(lines) or "You have not asked for a report here."

    async def stop(self, asked: ResearchRequest) -> Place | None:
        """End the open research of the requester, wherever they have asked for it, keeping what it
        has found; return where that was, None if there is none."""
        requester = asked.requester
        for report in await self._reports.of_person(asked.payer):
            is_theirs = report.place == requester.place or report.owner.is_same(requester.owner)
            if report.is_open and is_theirs:
                content = report.content.model_copy(update={"trouble": _STOPPED})
                if await self._reports.save(report, content, ends=True):
                    return report.place
        return None

    async def forget(self, place: Place) -> int:
        """Remove the reports that were asked for in a private place; return how many. Raises
        StorageError."""
        return await self._reports.remove_of(place)

    async def _step(self, job: Job) -> None:
        """Do the next step of a report, and add the job of the one after that. Raises ModelError,
        StorageError and ReportChanged; the worker then tries again."""
        token = job.payload["report"]
        report = await self._reports.get(token)
        if report is None or report.content.trouble == _STOPPED:
            return
        ends = True
        if report.is_open:
            content, ends = await self._advance(job, report)
            if not await self._reports.save(report, content, ends=ends):
                raise ReportChanged
            if not ends:
                await self._warn(report, content, job.payload["link"])
        kind, key = (_TELL, "tell") if ends else (_STEP, f"after {job.id}")
        # Only now, so that a crash in between repeats nothing but this.
        lane = "" if ends else _LANE
        await self._resources.jobs.add(kind, job.payload, key=f"{token}/{key}", lane=lane)

    async def _warn(self, report: Report, content: ReportContent, link: str) -> None:
        """Send the first urgent claim to the channel of a report, once for each report, and only if
        it rests on lines of the log alone: no page must make us speak."""
        claims = (each for each in content.claims if each.urgent and each.lines and not each.pages)
        claim = next(claims, None)
        if claim is None or self._say is None or is_private(report.place.channel):
            return
        text = f"Research, so far: {claim.text} {link}"
        # Where that is too early or too much, it stands in the report.
        await self._outbox.send(
            self._resources.name,
            report.place,
            text,
            key=f"research/{report.id}",
            quotes=claim.lines,
            now=self._resources.clock.now(),
        )

    async def _advance(self, job: Job, report: Report) -> tuple[ReportContent, bool]:
        """Return the content after the next step, and whether that was the last one."""
        researcher = await self._researcher(job, report)
        try:
            return await researcher.advance(report.question, report.content)
        except ModelError as error:
            waits = isinstance(error, Unreachable | Busy) and not isinstance(error, BudgetSpent)
            is_last = job.attempts >= job.max_attempts or isinstance(error, BudgetSpent)
            if waits or not is_last:
                raise
            _log.warning("research.ended_early", reason=type(error).__name__, error=str(error))
            content = report.content.model_copy(update={"trouble": error.sentence})
            if not content.claims:
                content = await researcher.extract(report.question, content)
            return content, True

    async def _researcher(self, job: Job, report: Report) -> Researcher:
        resources = self._resources
        agent, config = resources.configuration.agent, resources.configuration.config
        card = await resources.catalog.card()
        profile = Profile.from_card(card)
        options = RequestOptions(
            f"{resources.name}/research/{report.id}",
            "background",
            purpose="research",
            person=self._pseudonyms.of(report.person),
            channel=self._pseudonyms.of(room_name(report.place)),
            temperature=0.0,
            max_tokens=agent.max_tokens or profile.max_tokens,
            filters_output=profile.filters_output,
        )
        return Researcher(
            client=resources.client,
            options=options,
            profile=profile,
            log=LogReader.of_people(
                self._log.retrieval,
                report.scope,
                before=report.question_event_id,
                prefix=job.payload["prefix"],
                nicks=job.payload["nicks"],
            ),
            pages=self.pages(config),
            budget=agent.research_tokens,
            zone=agent.zone,
        )

    async def _tell(self, job: Job) -> None:
        """Say that a report is done, once that is possible."""
        report = await self._reports.get(job.payload["report"])
        if report is None or self._say is None:
            return
        content, now = report.content, self._resources.clock.now()
        lines = len({line for claim in content.claims for line in claim.lines})
        found = counted(len(content.claims), "thread" if content.is_extract else "claim")
        text = f"{found}, {counted(lines, 'line')}" if content.claims else "nothing found"
        reminder = Reminder(
            report.owner,
            report.place,
            is_private(report.place.channel),
            f"the report on “{_short(report.question)}” is done: {text}. {job.payload['link']}",
            report.time,
            question_event_id=report.question_event_id,
        )
        pause = await self._say(reminder, reminder.text)
        if pause and now - report.time < _DELIVERY_PERIOD:
            await self._resources.jobs.postpone(job, now + pause)


def _short(question: str) -> str:
    return question if len(question) <= _SHOWN_QUESTION else f"{question[:_SHOWN_QUESTION]}…"
