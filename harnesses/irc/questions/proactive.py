"""Unasked speech: lines and answers become signals, which the scheduler turns into runs.

Only on channels that are logged and whose `proactive` allows it; never in private. Lines of bots
and of people who have opted out do not get here.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from harnesses.core.tendril.turn import TurnResult
from harnesses.irc.policy.requests import CommandRequest, Decision
from harnesses.irc.questions.channel_view import LogViews
from harnesses.irc.questions.unasked_turn import UnaskedTurns
from harnesses.irc.services import BotServices
from llm.attention.attention import FOLLOW_UP_DELAYS, RETRY_DELAY, Trigger, TriggerKind
from llm.attention.message_features import MessageFeatures
from llm.attention.proactive_scheduler import ProactiveScheduler
from storage.chat_log.event import Place
from storage.queues.attention_state import AttentionStore, Signal

_NEVER = datetime.min.replace(tzinfo=UTC)


class ProactiveSpeech:
    """Unasked speech on all networks. `scheduler` exists after `prepare`."""

    scheduler: ProactiveScheduler

    def __init__(self, services: BotServices, log_views: LogViews) -> None:
        self._services, self._clock = services, services.resources.clock
        self._turns = UnaskedTurns(services, log_views, self._on_unasked_answer)
        # People of whom we have asked something: until when their next line is the answer.
        self._awaited: dict[tuple[Place, str], datetime] = {}

    async def prepare(self) -> None:
        """Restore pauses and signals of before a restart. Raises StorageError."""
        own = self._services.resources
        store = AttentionStore(own.database)
        self.scheduler = await ProactiveScheduler.restore(
            store, own.clock, own.accounting.today, self._run_model
        )

    def summary(self) -> list[str]:
        """Return the state for the status file; empty while the scheduler is idle."""
        waiting = f"{len(self.scheduler.pending_signals)} signals wait"
        return [waiting] if self.scheduler.is_awake else []

    def admin_summary(self, place: Place) -> str:
        """Return the state, and of a folded place the last wake-up and the last test-mode text."""
        scheduler = self.scheduler
        state = f"{len(scheduler.pending_signals)} signals wait"
        if wakes := [trigger for trigger in scheduler.recent_triggers if trigger.place == place]:
            state += f", last woken at {wakes[-1].time:%H:%M} UTC by {wakes[-1].kind}"
        if would := self._turns.would_say.get(place):
            state += f"; would have said: {would}"
        return state

    def on_message(self, request: CommandRequest, *, asked: bool) -> None:
        """Process a line on a channel where `proactive` is not off.

        It is `asked` if it is a command or a question to us. The line is logged, and its author is
        one whom the policy answers.
        """
        network, who = request.network, request.who
        place = Place(network.name, network.fold(request.place.channel))
        now, nick = self._clock.now(), network.fold(network.nick)
        line = MessageFeatures.extract(request.words, who.nick, now, network.fold)
        # A question to us is answered anyway, so it does not count as one to the channel.
        self.scheduler.on_message(place, replace(line, asks=line.asks and not asked), nick)
        # Whatever the line says, it is the one that was awaited.
        reacts = self._awaited.pop((place, line.person), _NEVER) > now
        if asked or not (reacts or nick in line.words):
            return
        # Like a command, a mention counts for the loop detector and for the rate limits.
        policy = self._services.policy
        if policy.record_and_check_loop(network, who, request.words, place.channel):
            return
        if policy.decide(request) is Decision.YES:
            kind = TriggerKind.REACTION if reacts else TriggerKind.DIRECT
            self._services.spawn(self._signal(kind, place, line.person, request))

    async def on_answered(self, request: CommandRequest, result: TurnResult) -> None:
        """Schedule the follow-up that the status of an answer on a channel calls for, unless
        `proactive` is off there by now."""
        network = request.network
        place = Place(network.name, network.fold(request.place.channel))
        if self._services.behaviours.resolve(place).proactive == "off":
            return
        if event_id := await request.pending_event.wait_visible():
            await self._follow_up(place, network.fold(request.nick), event_id, result)

    async def on_cleared(self, request: CommandRequest) -> None:
        """Drop the pending follow-up to a person whose conversation is cleared."""
        network = request.network
        place = Place(network.name, network.fold(request.place.channel))
        person = network.fold(request.nick)
        self._awaited.pop((place, person), None)
        await self.scheduler.drop(TriggerKind.THOUGHT, place, person)

    async def mute(self, place: Place) -> None:
        """Stop unasked speech in a place, after a kick, until an admin sets `proactive` there."""
        await self.scheduler.mute(place)

    async def unmute(self, place: Place) -> None:
        """Allow unasked speech in a place again, and discard its test-mode text."""
        self._turns.would_say.pop(place, None)
        await self.scheduler.unmute(place)

    async def _on_unasked_answer(self, trigger: Trigger, result: TurnResult) -> None:
        await self._follow_up(trigger.place, trigger.person, trigger.event_id, result)

    async def _follow_up(
        self, place: Place, person: str, event_id: int, result: TurnResult
    ) -> None:
        """Schedule the follow-up that the status of an answer calls for, or drop a pending one."""
        delay = FOLLOW_UP_DELAYS.get(result.status) if result.status else None
        if delay is None:
            await self.scheduler.drop(TriggerKind.THOUGHT, place, person)
            return
        now = self._clock.now()
        due = now + delay
        if result.status == "awaiting_answer":
            self._awaited = {key: end for key, end in self._awaited.items() if end > now}
            self._awaited[place, person] = due
        thought = Signal(TriggerKind.THOUGHT, place, due, person=person, event_id=event_id)
        await self.scheduler.signal(thought, replaces=True)

    async def _signal(
        self, kind: TriggerKind, place: Place, person: str, request: CommandRequest
    ) -> None:
        event_id = await request.pending_event.wait_visible()
        now = self._clock.now()
        if kind is TriggerKind.REACTION:  # the person has come back, so we need not
            await self.scheduler.drop(TriggerKind.THOUGHT, place, person)
        await self.scheduler.signal(Signal(kind, place, now, person=person, event_id=event_id))

    async def _run_model(self, trigger: Trigger) -> datetime | None:
        """Run the model for a trigger; return when to try again, if the model or an error has put
        it off."""
        result = await self._services.turns.catch_errors(
            functools.partial(self._turns.run, trigger)
        )
        if result.ok and not result.deferral:
            return None
        later = timedelta(hours=result.deferral.hours) if result.deferral else RETRY_DELAY
        return self._clock.now() + later
