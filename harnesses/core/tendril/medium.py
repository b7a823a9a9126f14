"""The means of a tendril on its medium: the shared log, the outbox, reminders, privacy."""

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
    NOWHERE,
    Origin,
    PeerAnswer,
    PeerQuestion,
    PeerService,
    offered_tools,
    run_offered,
)
from harnesses.core.services.privacy import PrivacyService
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
from llm.tools.semantic_search import SemanticIndex
from storage.chat_log.event import Place, Scope
from storage.db.database import Address, Database
from storage.queues.reminders import Owner, Reminder
from storage.settings import StorageSettings, log_address, store_address

_AGAIN = timedelta(seconds=15)  # until a reminder that could not be said is tried again


class TendrilMedium(TendrilResources, ABC):
    """The resources of a tendril, and what it needs to listen and speak on its medium.

    `log` is the log that all tendrils share, `outbox` has other tendrils say something, `peers`
    asks them, `remind` keeps reminders, `privacy` what people decide about their words, and
    `metrics` are numbers for Prometheus. A tendril that overrides `say` says what others put into
    its outbox, and its reminders. One that sets `asked_about`, to a few words for the models of
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
        """Say a text at a place of this medium; return False while that is not possible. To be
        overridden by a tendril that can speak without having been asked."""
        return False

    async def say_reminder(self, reminder: Reminder, text: str) -> timedelta | None:
        """Say a reminder where it belongs; return how long to wait if that is not possible now.

        To be overridden where a private one is not said by `say`.
        """
        address = "" if reminder.private else f"{reminder.owner.nick}: "
        return None if await self.say(reminder.place, f"{address}{text}") else _AGAIN

    async def until_speaking(self) -> None:
        """Wait until something can be said: until the tendril is ready, unless overridden."""
        await self.status.became_ready.wait()

    def request(self, line: LoggedLine, text: str = "") -> TurnRequest:
        """Return the question in a line as a request for `turn`, with the log of its room.

        `text` is the question where it is not the whole line, as after "Terra:". Change what you
        like of the request by `dataclasses.replace`.
        """
        place = line.place
        return TurnRequest(
            conversation=conversation_name(place, line.who),
            who=line.who.nick,
            text=text or line.text,
            person=line.who.name.lower(),
            room=room_name(place),
            log_window=self.log.window(line, last=self.agent.max_context_messages),
            tools=[self.log.tools(place.channel, before=line)],
            values={"room": place.channel},
            private=not is_public(place),
            keeps=line.is_logged,
            origin=Origin(place.network, line.who, Scope.from_places(place)),
        )

    def request_from_peer(self, question: PeerQuestion) -> TurnRequest:
        """Return a question of another tendril as a request for `turn`.

        The person behind it may read what they may read where they asked, and has no rights here.
        Nothing of it is remembered. To be overridden by a tendril that gives some people more, or
        some of its tools to nobody elsewhere.
        """
        origin = question.origin
        asked = hashlib.sha256(question.text.encode()).hexdigest()[:16]
        return TurnRequest(
            conversation=f"asked/{uuid4().hex}",
            who=origin.who.nick,
            text=question.text,
            person=f"{origin.network}/{origin.who.name.lower()}",
            tools=[self.log.tools_within(origin.scope)],
            values={"room": origin.path[-1]},
            priority=origin.priority,
            profile="asked",
            private=True,
            keeps=False,
            # A run that is repeated after a crash asks the same, and nothing happens twice.
            run=f"{origin.run}/{asked}" if origin.run else "",
            origin=origin,
        )

    def requester(self, line: LoggedLine) -> Requester:
        """Return whoever said a line as somebody who asks for reminders, where they said it."""
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
        """Return where the tendril's own tables are."""
        return store_address(self.config, self.name)

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open the log and the outbox beside everything else. Raises StorageError, ConfigError."""
        data, clock = self.config.data, self.clock
        async with (
            super().open_resources(),
            self._log_database() as database,
            TendrilLog.open(
                database, self.name, clock, Quoting(self.agent.zone), self._index_of(database)
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
        """Open the file of the log, unless it is the tendril's own. Raises StorageError."""
        path = log_address(self.config)
        if path == self.database.address:
            yield self.database
        else:
            async with Database.open(path) as database:
                yield database

    def _index_of(self, database: Database) -> SemanticIndex | None:
        """Return the index of the log by meaning, None where lines are not indexed."""
        is_indexed = self.config.section(StorageSettings).semantic
        return SemanticIndex(self.client, database) if is_indexed else None

    async def speak(self) -> None:
        """Say what is in the outbox and the reminders that are due, once that is possible, until
        cancelled."""
        if type(self).say is TendrilMedium.say:
            return
        await self.until_speaking()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.outbox.deliver(self.say))
            tasks.create_task(self.remind.run())

    @abstractmethod
    async def answer_peer(self, question: PeerQuestion) -> PeerAnswer:
        """Answer a question of another tendril, in the name of who is behind it. Never raises."""

    def mcp_owners(self, scope: Scope) -> Sequence[object]:
        """Return the owners of tools, of which MCP clients that may read `scope` of the log may
        call those that are marked `mcp`: the tendril itself, unless overridden."""
        return (self,)

    async def answer_peers(self) -> None:
        """Answer what other tendrils ask, if they may, and run the tools that MCP clients call,
        from when this one is ready, until cancelled."""
        tools = offered_tools(self.mcp_owners(NOWHERE))
        self.status.offer_tools([each.model_dump() for each in tools])
        if self.asked_about or tools:
            await self.status.became_ready.wait()
            await self.peers.run(self._answer_or_run)

    async def _answer_or_run(self, question: PeerQuestion) -> PeerAnswer:
        """Answer a question, or run the tool that it calls."""
        if question.tool:
            return await run_offered(self.mcp_owners(question.origin.scope), question)
        if not self.asked_about:
            return PeerAnswer(f"{self.name} takes no questions", ok=False)
        return await self.answer_peer(question)


PARTS = frozenset({*TendrilResources.__annotations__, *TendrilMedium.__annotations__}) - {
    "config",
    "agent",  # these two change with the configuration
}
"""The names of the parts that every tendril has, and that stay as they are while it runs."""
