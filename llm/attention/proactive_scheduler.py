"""The scheduler of unasked runs: one tick a second while anything could become a trigger.

Model runs are concurrent with the ticks. The pause is stored before the model runs, and a signal
before it counts, so that a restart neither repeats nor forgets anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

import structlog

from llm.attention.attention import Attention, Trigger, TriggerKind
from llm.attention.message_features import MessageFeatures
from storage.chat_log.event import Place
from storage.db.errors import StorageError
from storage.queues.attention_state import AttentionStore, Signal, Snooze
from terrarium.clock import Clock

TICK = 1.0
"""Seconds between two ticks."""

DAILY_TOKENS = 1_000_000
"""The tokens used since midnight UTC, for any purpose, from which on unanswered questions are left
to people. The tendril still follows up and reacts."""

RunModel = Callable[[Trigger], Awaitable[datetime | None]]
"""Runs the model for a trigger; returns the time until which that is put off, None if it is
settled. Never raises."""

T = TypeVar("T")

_MAX_RECENT_TRIGGERS = 20  # triggers

_log = structlog.get_logger()


class ProactiveScheduler:
    """Asks an `Attention` for reasons and runs the model for them.

    `tokens_today` returns the tokens that the tendril has used today. `ticks` counts the ticks,
    `recent_triggers` holds the latest triggers, oldest first. Create one with `restore`.
    """

    def __init__(
        self,
        attention: Attention,
        store: AttentionStore,
        clock: Clock,
        tokens_today: Callable[[], int],
        run_model: RunModel,
    ) -> None:
        self._attention, self._store, self._clock = attention, store, clock
        self._tokens_today, self._run_model = tokens_today, run_model
        self._news = asyncio.Event()
        self.ticks = 0
        self.recent_triggers: deque[Trigger] = deque(maxlen=_MAX_RECENT_TRIGGERS)

    @classmethod
    async def restore(
        cls,
        store: AttentionStore,
        clock: Clock,
        tokens_today: Callable[[], int],
        run_model: RunModel,
    ) -> ProactiveScheduler:
        """Create a scheduler with the stored pauses and signals. Raises StorageError."""
        await store.expire(clock.now())
        return cls(Attention(await store.load()), store, clock, tokens_today, run_model)

    @property
    def is_awake(self) -> bool:
        """True while anything could become a trigger."""
        return bool(self._attention)

    @property
    def running_count(self) -> int:
        """The number of model runs in progress."""
        return self._attention.running_count

    @property
    def pending_signals(self) -> list[Signal]:
        """The signals that no run has handled yet."""
        return self._attention.pending_signals

    async def run(self) -> None:
        """Tick while anything could become a trigger, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                # No await between the check and `clear`, so no wake-up is lost.
                if not self.is_awake:
                    self._news.clear()
                    await self._news.wait()
                self.ticks += 1
                may_contact = self._tokens_today() < DAILY_TOKENS
                for trigger in self._attention.tick(self._clock.now(), may_contact=may_contact):
                    self.recent_triggers.append(trigger)
                    tasks.create_task(self._run(trigger))
                await self._clock.sleep(TICK)

    def on_message(self, place: Place, line: MessageFeatures, nick: str) -> None:
        """Feed in a line of a channel; `nick` is the bot's folded nick there."""
        self._attention.channel(place).on_message(line, nick)
        self._news.set()

    async def signal(self, signal: Signal, *, replaces: bool = False) -> None:
        """Add a signal, which is kept until a run settles it, also over a restart.

        With `replaces` it replaces the earlier signals of its kind and person on the channel.
        """
        if self._attention.ignores(signal):
            return
        if replaces:
            await self.drop(TriggerKind(signal.kind), signal.place, signal.person)
        stored = await self._persist(self._store.add_signal(signal))
        self._attention.channel(signal.place).signals.append(stored or signal)
        self._news.set()

    async def drop(self, kind: TriggerKind, place: Place, person: str) -> None:
        """Discard the signals of a kind and person on a channel."""
        gone = [
            signal
            for signal in self._attention.channel(place).signals
            if (signal.kind, signal.person) == (kind, person)
        ]
        self._attention.drop(gone)
        await self._persist(self._store.mark_done(gone))

    async def mute(self, place: Place) -> None:
        """Stop speaking unasked on a channel, until `unmute`."""
        self._attention.channel(place).muted = True
        await self._persist(self._store.put_off(Snooze(TriggerKind.CONTACT, place)))

    async def unmute(self, place: Place) -> None:
        """Allow speaking unasked on a channel again."""
        self._attention.channel(place).muted = False
        await self._persist(self._store.lift(place))

    async def _run(self, trigger: Trigger) -> None:
        # The pause is stored first: after a crash during the run the bot must not speak twice.
        if trigger.kind is not TriggerKind.REACTION:
            await self._persist(self._store.record_contact(trigger.place, trigger.time))
        deferred_until = await self._run_model(trigger)
        _log.info("attention.woke", kind=trigger.kind.value, put_off=deferred_until is not None)
        if deferred_until:
            snooze = Snooze(trigger.kind, trigger.place, deferred_until)
            await self._persist(self._store.put_off(snooze))
        else:
            await self._persist(self._store.mark_done(self._attention.settled_by(trigger)))
        self._attention.finish(trigger, deferred_until)

    async def _persist(self, work: Awaitable[T]) -> T | None:
        """Await a write and return its result; None if it fails, when only the state in memory is
        up to date."""
        try:
            return await work
        except StorageError as error:
            _log.error("attention.not_kept", error=str(error))
            return None
