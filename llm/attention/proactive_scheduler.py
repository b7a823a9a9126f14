"""The heartbeat: a tick a second while there is something to look at, and none while there is not.

Runs of the model go on beside it. What must not be lost is written down before it counts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from llm.attention.acknowledgements import Acknowledgement, AcknowledgementState
from llm.attention.attention import Attention
from llm.attention.message_features import MessageFeatures
from llm.attention.settings import AttentionSettings
from llm.attention.token_budget import FULL, TokenBudget
from llm.attention.trigger import Trigger
from llm.attention.trigger_kinds import ASKED, TriggerKind
from storage.chat_log.event import Place
from storage.db.errors import StorageError
from storage.queues.attention_state import AttentionStore, Signal, Snooze
from terrarium.clock import Clock

BEAT = 1.0
"""Seconds."""

Think = Callable[[Trigger], Awaitable[Acknowledgement | None]]
"""Runs the model for a reason; None: that is dealt with, else how it was put off. Never raises."""

_REMEMBERED = 20

T = TypeVar("T")

_log = structlog.get_logger()


class ProactiveScheduler:
    """Keeps an `Attention` going; `beats` counts its ticks, `wakes` are the last reasons to run the
    model. Get one with `restore`."""

    def __init__(
        self,
        attention: Attention,
        store: AttentionStore,
        clock: Clock,
        tokens: Callable[[], int],
        think: Think,
    ) -> None:
        self._attention, self._store, self._clock = attention, store, clock
        self._tokens, self._think = tokens, think
        self._news = asyncio.Event()
        self._spent = tokens()
        self._ticked = clock.monotonic()
        self.beats = 0
        self.wakes: deque[Trigger] = deque(maxlen=_REMEMBERED)

    @classmethod
    async def restore(
        cls,
        store: AttentionStore,
        settings: AttentionSettings,
        clock: Clock,
        tokens: Callable[[], int],
        think: Think,
    ) -> ProactiveScheduler:
        """One that knows what an earlier life has left in `store`. `tokens` returns how many were
        read and written today. Raises StorageError."""
        past = await store.load()
        level = FULL if past.energy is None else past.energy
        energy = TokenBudget(settings.tokens, settings.recharge, level)
        if past.seen:
            energy.recover((clock.now() - past.seen).total_seconds())
        attention = Attention(energy, past.contacted)
        for each in past.put_off:
            state = AcknowledgementState.DEFERRED if each.until else AcknowledgementState.SUPPRESSED
            known = Acknowledgement(state, each.value, each.until)
            attention.acknowledged.put(TriggerKind(each.kind), each.place, known)
        for signal in past.signals:
            attention.add_signal(signal)
        return cls(attention, store, clock, tokens, think)

    @property
    def energy(self) -> float:
        """How much of its tokens the tendril has left: 0.05 to 1."""
        return self._attention.energy.level

    @property
    def is_awake(self) -> bool:
        """Whether there is something to look at."""
        return bool(self._attention)

    @property
    def running_count(self) -> int:
        """How many runs of the model there are at the moment."""
        return self._attention.running_count

    @property
    def pending_signals(self) -> list[Signal]:
        """The signals that are not dealt with."""
        return self._attention.pending_signals

    async def run(self) -> None:
        """Tick whenever there is something to look at, for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                if not self.is_awake:
                    self._news.clear()
                    await self._news.wait()
                await self._beat(tasks)

    def on_message(self, place: Place, line: MessageFeatures, nick: str) -> None:
        """Somebody has said something; `nick` is ours there, folded."""
        self._attention.on_message(place, line, nick)
        self._news.set()

    async def signal(self, signal: Signal, *, alone: bool = False) -> None:
        """Something has happened: it waits until it is dealt with, also over a restart. One that
        is `alone` takes the place of those of its kind and person there."""
        if self._attention.pauses(signal):
            return
        if alone:
            await self.drop(TriggerKind(signal.kind), signal.place, signal.person)
        kept = await self._persist(self._store.add_signal(signal))
        self._attention.add_signal(kept or signal)
        self._news.set()

    async def drop(self, kind: TriggerKind, place: Place, person: str) -> None:
        """What waits of a kind for a person there is of no interest any more."""
        gone = [
            signal
            for signal in self._attention.pending_signals
            if (signal.kind, signal.place, signal.person) == (kind, place, person)
        ]
        self._attention.drop(gone)
        await self._persist(self._store.mark_done(gone))

    async def mute(self, place: Place) -> None:
        """Nothing makes us speak unasked there, until that is lifted."""
        unasked = [kind for kind in TriggerKind if kind not in ASKED]
        for kind in unasked:
            self._attention.acknowledged.put(
                kind, place, Acknowledgement(AcknowledgementState.SUPPRESSED)
            )
        for kind in unasked:
            await self._persist(self._store.put_off(Snooze(kind, place)))

    async def unmute(self, place: Place) -> None:
        """What was hushed there counts again."""
        self._attention.acknowledged.lift(place)
        await self._persist(self._store.lift(place))

    async def _beat(self, tasks: asyncio.TaskGroup) -> None:
        """Tick until there is nothing to look at. The ticks are a second apart, whatever each
        takes; one that cannot be in time is left out."""
        began, number = self._clock.monotonic(), 0
        while self.is_awake:
            await self._tick(tasks)
            passed = self._clock.monotonic() - began
            number = max(number + 1, int(passed / BEAT))
            await self._clock.sleep(max(0.0, began + number * BEAT - self._clock.monotonic()))

    async def _tick(self, tasks: asyncio.TaskGroup) -> None:
        self.beats += 1
        now, moment = self._clock.now(), self._clock.monotonic()
        passed, self._ticked = moment - self._ticked, moment
        spent, self._spent = self._spent, self._tokens()
        # The count begins anew at midnight.
        self._attention.energy.spend(self._spent - spent if self._spent >= spent else self._spent)
        for trigger in self._attention.tick(now, passed):
            self.wakes.append(trigger)
            tasks.create_task(self._run(trigger))
        if self._attention.energy_changed(now):
            await self._persist(self._store.record_energy(self.energy, now))

    async def _run(self, trigger: Trigger) -> None:
        """Run the model, and note what came of it. The pause until the next run begins at once, so
        that a crash does not make us speak twice."""
        if trigger.kind not in ASKED:
            await self._persist(self._store.record_contact(trigger.place, trigger.time))
        put_off = await self._think(trigger)
        _log.info("attention.woke", kind=trigger.kind.value, put_off=put_off is not None)
        if put_off is None:
            await self._persist(self._store.mark_done(self._attention.settled_by(trigger)))
        elif put_off.until:
            kept = Snooze(trigger.kind, trigger.place, put_off.value, put_off.until)
            await self._persist(self._store.put_off(kept))
        self._attention.finish(trigger, put_off)

    async def _persist(self, work: Awaitable[T]) -> T | None:
        """Write something down; when that fails, what is in memory still counts."""
        try:
            return await work
        except StorageError as error:
            _log.error("attention.not_kept", error=str(error))
            return None
