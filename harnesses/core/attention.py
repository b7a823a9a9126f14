"""A mixin for tendrils that speak unasked; a rule, without a model, decides when to consider it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from harnesses.core.services.question_tools import Door
from harnesses.core.services.shared_log import LoggedLine, is_public, room_name
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from llm.attention.attention import RETRY_DELAY, Trigger, TriggerKind
from llm.attention.message_features import MessageFeatures
from llm.attention.proactive_scheduler import ProactiveScheduler
from llm.attention.prompts import passing_mention, unanswered_question
from llm.messages.message import NO_ASKER
from storage.chat_log.event import Event, Scope
from storage.chat_log.event_table import Query
from storage.queues.attention_state import AttentionStore, Signal


class AttentionMixin(Tendril):
    """A tendril that may speak unasked in its public rooms, using `say`.

    Pass every line of a room to `listen`, and a line to which an answer may be welcome to `signal`.
    A trigger is a signal, or a question that nobody has answered for five minutes. The model is
    then asked, and may stay silent; either way a pause of half an hour follows in that room. The
    `scheduler` stores pauses and signals, so that they survive a restart.
    """

    scheduler: ProactiveScheduler

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open the resources of the base class, and restore pauses and signals. Raises
        StorageError and ConfigError."""
        async with super().open_resources():
            self.scheduler = await ProactiveScheduler.restore(
                AttentionStore(self.database),
                self.clock,
                self.accounting.today,
                self._speak_unasked,
            )
            yield

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return the coroutines to run concurrently with `serve`, the scheduler included."""
        return [*super().background(), self.scheduler.run()]

    def listen(self, line: LoggedLine, nick: str, *, asked: bool = False) -> None:
        """Observe a line in a room where our nick is `nick`. Private and unlogged lines are
        ignored.

        Set `asked` if the line is a question to us: it gets its answer by a turn, so it does not
        count as an open question.
        """
        if is_public(line.place) and line.is_logged:
            seen = MessageFeatures.extract(line.text, line.who.nick, self.clock.now())
            seen = replace(seen, asks=seen.asks and not asked)
            self.scheduler.on_message(line.place, seen, nick.lower())

    async def signal(self, line: LoggedLine) -> None:
        """Let the model decide soon whether to respond to a line, for example one that mentions us
        in passing. A line that is private or not logged is ignored, as is any during a pause."""
        # Only the id of the line is stored, never its text; 0 means that it was not logged.
        event_id = await line.pending.wait_visible() if is_public(line.place) else 0
        if event_id:
            person, now = line.who.nick.lower(), self.clock.now()
            await self.scheduler.signal(
                Signal(TriggerKind.DIRECT, line.place, now, person=person, event_id=event_id)
            )

    def unasked_request(self, trigger: Trigger, line: Event | None) -> TurnRequest:
        """Return the turn request for a trigger: its `line`, or else an open question of its
        person.

        Override it to change the prompt or the tools.
        """
        place = trigger.place
        about = unanswered_question(trigger.person)
        return TurnRequest(
            conversation=room_name(place),
            who=NO_ASKER,
            text=passing_mention(line.nick, line.text) if line else about,
            tools=self.tools_for(Door(log=self.log.tools_within(Scope.from_places(place)))),
            values={"room": place.channel},
            priority="background",
            profile=trigger.profile,
            keeps=False,
        )

    async def _speak_unasked(self, trigger: Trigger) -> datetime | None:
        """Run a turn for a trigger; return None, or the time until which the trigger is put off, at
        the request of the model or after an error."""

        async def deliver(result: TurnResult) -> bool:
            # An apology is not said: nobody has asked. Silence counts as delivered.
            return not (result.ok and result.text) or await self.say(trigger.place, result.text)

        async def run() -> TurnResult:
            line = None
            # Read again just now: its author may have been forgotten or opted out since the signal.
            if trigger.event_id:
                ids = frozenset({trigger.event_id})
                wanted = Query(scope=Scope.from_places(trigger.place), ids=ids, limit=1)
                (found,) = await self.log.chat_log.for_model(wanted)
                if not found:
                    return TurnResult("")
                line = found[0]
            return await self.turn(replace(self.unasked_request(trigger, line), deliver=deliver))

        result = await self.turns.catch_errors(run)
        if result.ok and not result.deferral:
            return None
        later = timedelta(hours=result.deferral.hours) if result.deferral else RETRY_DELAY
        return self.clock.now() + later
