"""Speaking unasked, for a tendril that wants to: when, is decided without a model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from harnesses.core.services.shared_log import LoggedLine, is_public, room_name
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from llm.attention.attention import LATER, Trigger, TriggerKind
from llm.attention.message_features import MessageFeatures
from llm.attention.proactive_scheduler import ProactiveScheduler
from llm.attention.prompts import passing_mention, unanswered_question
from storage.chat_log.event import Event, Scope
from storage.chat_log.query import Query
from storage.queues.attention_state import AttentionStore, Signal

NOBODY = "nobody"
"""The asker in prompts when nobody has asked."""

_NOTHING = TurnResult("")


class AttentionMixin(Tendril):
    """A tendril that may speak unasked in its public rooms, by `say`.

    Give it what is said there by `listen`, and `signal` a line to which an answer may be welcome.
    When there is reason to speak (a signal, or a question that nobody has answered for five
    minutes) the model is asked, and may stay silent; then there is a pause of half an hour in that
    room. Pauses and signals are kept over a restart. `scheduler` knows them.
    """

    scheduler: ProactiveScheduler

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Restore pauses and signals beside everything else. Raises StorageError, ConfigError."""
        async with super().open_resources():
            self.scheduler = await ProactiveScheduler.restore(
                AttentionStore(self.database),
                self.clock,
                self.accounting.today,
                self._speak_unasked,
            )
            yield

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return what is to run beside `serve`: the look for reasons to speak."""
        return [*super().background(), self.scheduler.run()]

    def listen(self, line: LoggedLine, nick: str, *, asked: bool = False) -> None:
        """Take in what somebody has said where we are called `nick`; `asked` if it was said to us
        and is answered anyway. Of private and of unlogged lines nothing is taken in."""
        if is_public(line.place) and line.is_logged:
            seen = MessageFeatures.extract(line.text, line.who.nick, self.clock.now())
            seen = replace(seen, asks=seen.asks and not asked)
            self.scheduler.on_message(line.place, seen, nick.lower())

    async def signal(self, line: LoggedLine) -> None:
        """Have the model decide soon whether to say something to a line, as one that names us in
        passing. Nothing happens in a pause, or for a line that is private or not logged."""
        event_id = await line.pending.wait_visible() if is_public(line.place) else 0
        if event_id:
            person, now = line.who.nick.lower(), self.clock.now()
            await self.scheduler.signal(
                Signal(TriggerKind.DIRECT, line.place, now, person=person, event_id=event_id)
            )

    def unasked_request(self, trigger: Trigger, line: Event | None) -> TurnRequest:
        """Return the request for a turn that nobody has asked for, because of a `line` or of an
        open question. To be overridden for other words or tools."""
        place = trigger.place
        about = unanswered_question(trigger.person)
        return TurnRequest(
            conversation=room_name(place),
            who=NOBODY,
            text=passing_mention(line.nick, line.text) if line else about,
            tools=[self.log.tools_within(Scope.from_places(place))],
            values={"room": place.channel},
            priority="background",
            profile=trigger.profile,
            keeps=False,
        )

    async def _speak_unasked(self, trigger: Trigger) -> datetime | None:
        """Run the model; return until when the reason is put off, by the model or by an error."""
        result = await self.catch_errors(lambda: self._unasked_turn(trigger))
        if result.ok and not result.deferral:
            return None
        later = timedelta(hours=result.deferral.hours) if result.deferral else LATER
        return self.clock.now() + later

    async def _unasked_turn(self, trigger: Trigger) -> TurnResult:
        """Ask the model and say its answer, unless the line has been forgotten meanwhile."""
        line = None
        if trigger.event_id:
            ids = frozenset({trigger.event_id})
            wanted = Query(scope=Scope.from_places(trigger.place), ids=ids, limit=1)
            (found,) = await self.log.chat_log.for_model(wanted)
            if not found:
                return _NOTHING
            line = found[0]

        async def deliver(result: TurnResult) -> bool:
            return not (result.ok and result.text) or await self.say(trigger.place, result.text)

        return await self.turn(replace(self.unasked_request(trigger, line), deliver=deliver))
