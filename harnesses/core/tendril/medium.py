"""The services of a tendril for its medium: shared log, outbox, peers, reminders, privacy."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import ClassVar
from uuid import uuid4

from harnesses.core.services.metrics import TendrilMetrics
from harnesses.core.services.outbox import TendrilOutbox
from harnesses.core.services.peers import (
    EMPTY_SCOPE,
    Origin,
    PeerAnswer,
    PeerQuestion,
    PeerService,
    offered_tools,
    run_offered,
)
from harnesses.core.services.privacy import PrivacyService
from harnesses.core.services.question_tools import Door
from harnesses.core.services.reminders import ReminderService, Requester
from harnesses.core.services.shared_log import (
    LoggedLine,
    TendrilLog,
    conversation_name,
    is_public,
    room_name,
)
from harnesses.core.tendril.resources import TendrilResources
from harnesses.core.tendril.status import StatusFile, askable
from harnesses.core.tendril.turn import TurnRequest
from llm.log_questions.answers import Quoting
from storage.chat_log.event import Place, Scope
from storage.db.database import Address, Database
from storage.queues.reminders import Owner, Reminder
from storage.settings import StorageSettings, log_address, store_address

_REMINDER_RETRY = timedelta(seconds=15)  # retry interval of a reminder that could not be said


class TendrilMedium(TendrilResources, ABC):
    """The resources of a tendril, and the services with which it listens and speaks on its medium.

    `log` is the log that all tendrils share. `outbox` sends messages through other tendrils and
    `peers` asks them questions. `remind` stores reminders, `privacy` handles opt-outs and erasure,
    and `metrics` are counters and gauges for Prometheus.

    A tendril that overrides `say` delivers the messages that others put into its outbox, and its
    reminders. A tendril that sets `asked_about`, its subject in a few words for the models of
    others, can be asked by them.
    """

    asked_about: ClassVar[str] = ""

    log: TendrilLog
    outbox: TendrilOutbox
    peers: PeerService
    remind: ReminderService
    privacy: PrivacyService
    metrics: TendrilMetrics
    status: StatusFile

    async def say(self, place: Place, text: str) -> bool:
        """Say a text at a place of this medium; return False if that is not possible at the moment.

        Override it in a tendril that can speak without being asked.
        """
        return False

    async def say_quoting(self, place: Place, text: str, quotes: frozenset[int]) -> bool:
        """Say a text of the outbox, which quotes these lines of the log (by id), as `say` does.

        Override it to log the text with its `quotes`, so that it is erased with those lines.
        """
        return await self.say(place, text)

    async def say_reminder(self, reminder: Reminder, text: str) -> timedelta | None:
        """Say a reminder at its place; return None, or how long to wait before the next attempt if
        it could not be said.

        Override it if private reminders cannot be delivered by `say`.
        """
        address = "" if reminder.private else f"{reminder.owner.nick}: "
        return None if await self.say(reminder.place, f"{address}{text}") else _REMINDER_RETRY

    async def until_speaking(self) -> None:
        """Wait until messages can be said; by default until the tendril is ready."""
        await self.status.became_ready.wait()

    def request(self, line: LoggedLine, text: str = "") -> TurnRequest:
        """Create the request for `turn` that answers a logged line, with the log of its room.

        Pass `text` if the question is only a part of the line, as after "Terra:". Adapt the request
        with `dataclasses.replace`.
        """
        place = line.place
        return TurnRequest(
            conversation=conversation_name(place, line.who),
            who=line.who.nick,
            text=text or line.text,
            person=line.who.name.lower(),
            room=room_name(place),
            log_window=self.log.window(line, last=self.agent.max_context_messages),
            tools=self.tools_for(
                Door(
                    log=self.log.tools(place.channel, before=line),
                    requester=self.requester(line) if self._speaks else None,
                )
            ),
            values={"room": place.channel},
            private=not is_public(place),
            keeps=line.is_logged,
            origin=Origin(place.network, line.who, Scope.from_places(place)),
        )

    def request_from_peer(self, question: PeerQuestion) -> TurnRequest:
        """Create the request for `turn` that answers a question from another tendril.

        The person who asked may read the same part of the log as in the place where they asked, and
        has no rights here. Nothing is remembered. Override it to grant some people more, or to
        withhold tools from other tendrils.
        """
        # Each question has a conversation of its own, so that they are answered concurrently and no
        # two people share a context.
        origin = question.origin
        asked = hashlib.sha256(question.text.encode()).hexdigest()[:16]
        return TurnRequest(
            conversation=f"asked/{uuid4().hex}",
            who=origin.who.nick,
            text=question.text,
            person=f"{origin.network}/{origin.who.name.lower()}",
            tools=self.tools_for(Door(log=self.log.tools_within(origin.scope))),
            values={"room": origin.path[-1]},
            priority=origin.priority,
            profile="asked",
            private=True,
            keeps=False,
            # The caller's run repeats its questions after a crash. The same key finds the effects
            # that our run has recorded, so that they are not repeated (see `llm.agent.trace`).
            run=f"{origin.run}/{asked}" if origin.run else "",
            origin=origin,
        )

    @abstractmethod
    def tools_for(self, door: Door) -> list[object]:
        """Return the owners of the tools of a question that comes through a door."""

    @property
    def _speaks(self) -> bool:
        """True if the tendril can speak without being asked: it overrides `say`."""
        return type(self).say is not TendrilMedium.say

    def requester(self, line: LoggedLine) -> Requester:
        """Return the `Requester` for a line: its author, asking for reminders at its place."""
        who, place = line.who, line.place
        return Requester(
            owner=Owner(place.network, who.nick, who.user, who.host, who.account),
            place=place,
            private=not is_public(place),
            room=room_name(place),
            person=who.name.lower(),
            question=line.pending,
        )

    def database_address(self) -> Address:
        """Return the address of the tendril's own database."""
        return store_address(self.config, self.name)

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open the resources of the base class, the log and the outbox, and create the services.
        Raises StorageError and ConfigError."""
        data, clock = self.config.data, self.clock
        is_indexed = self.config.section(StorageSettings).semantic
        async with (
            super().open_resources(),
            self._log_database() as database,
            TendrilLog.open(
                database,
                self.name,
                clock,
                Quoting(self.agent.zone),
                self.client if is_indexed else None,
            ) as self.log,
            TendrilOutbox.open(store_address(self.config, "outbox"), self.name) as self.outbox,
        ):
            self.metrics = TendrilMetrics()
            self.peers = PeerService(self.outbox.database, self.name, partial(askable, data), clock)
            self.remind = ReminderService(
                self.database,
                clock,
                lambda: self.agent.zone_name,
                self.say_reminder,
                data / "run" / f"{self.name}-reminders.lock",
            )
            self.privacy = PrivacyService(
                self.log, self.database, self.accounting, self.config, clock
            )
            yield

    @asynccontextmanager
    async def _log_database(self) -> AsyncIterator[Database]:
        """Yield the database of the log. Raises StorageError."""
        # Only the IRC tendril keeps its own tables there. A second `Database` for the same file
        # would have a write lock of its own, and its writes would contend with ours in SQLite.
        path = log_address(self.config)
        if path == self.database.address:
            yield self.database
        else:
            async with Database.open(path) as database:
                yield database

    async def speak(self) -> None:
        """Deliver the messages of the outbox and the due reminders, until cancelled.

        Starts when `until_speaking` returns; returns at once if `say` is not overridden.
        """
        # A tendril that cannot speak leaves its messages queued.
        if not self._speaks:
            return
        await self.until_speaking()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.outbox.deliver(self.say_quoting))
            tasks.create_task(self.remind.run())

    @abstractmethod
    async def answer_peer(self, question: PeerQuestion) -> PeerAnswer:
        """Answer a question from another tendril, on behalf of the person who asked it. Never
        raises."""

    def mcp_owners(self, scope: Scope) -> Sequence[object]:
        """Return the objects whose tools marked `mcp` are offered to MCP clients; by default the
        tendril itself.

        `scope` is the part of the log that the calling client may read.
        """
        return (self,)

    async def answer_peers(self) -> None:
        """Answer the questions of other tendrils, and run the tools that MCP clients call, from
        the time this tendril is ready until cancelled."""
        # The status file lists the tools for all clients alike, so no scope applies to the list.
        # A call is run with the scope of its caller.
        tools = offered_tools(self.mcp_owners(EMPTY_SCOPE))
        self.status.offer_tools([each.model_dump() for each in tools])
        if self.asked_about or tools:
            await self.status.became_ready.wait()
            await self.peers.run(self._answer_or_run)

    async def _answer_or_run(self, question: PeerQuestion) -> PeerAnswer:
        """Answer a question, or run the tool that it calls."""
        # Only `PeerService.ask` checks whether a tendril takes questions; `call` does not.
        if question.tool:
            return await run_offered(self.mcp_owners(question.origin.scope), question)
        if not self.asked_about:
            return PeerAnswer(f"{self.name} takes no questions", ok=False)
        return await self.answer_peer(question)


RESERVED = frozenset({*TendrilResources.__annotations__, *TendrilMedium.__annotations__}) - {
    "config",
    "agent",  # these two change with the configuration
}
"""The attribute names of the resources and services, which must not be reassigned while a tendril
runs."""
