"""The heartbeat: in time, beside what the model does, over restarts, and still when nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from llm.attention.attention import Trigger, TriggerKind
from llm.attention.message_features import MessageFeatures
from llm.attention.proactive_scheduler import DAILY_TOKENS, ProactiveScheduler
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.attention_state import AttentionStore, Signal
from terrarium.clock import Clock
from tests.kit.clock import ManualClock
from tests.kit.patience import PATIENCE

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FROGS, TOADS = Place("irc", "#frogs"), Place("irc", "#toads")
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


class Mind:
    """A model that is asked; each run ends when it is told how."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Trigger] = asyncio.Queue()
        self.ends: asyncio.Queue[datetime | None] = asyncio.Queue()

    async def think(self, trigger: Trigger) -> datetime | None:
        self.asked.put_nowait(trigger)
        return await self.ends.get()

    async def wake(self) -> Trigger:
        async with asyncio.timeout(PATIENCE):
            return await self.asked.get()


@asynccontextmanager
async def heart(
    path: Path, clock: Clock, mind: Mind, tokens: Callable[[], int] = int
) -> AsyncIterator[ProactiveScheduler]:
    """A heart that beats."""
    async with Database.open(path / "irc.db") as database:
        store = AttentionStore(database)
        beating = await ProactiveScheduler.restore(store, clock, tokens, mind.think)
        task = asyncio.create_task(beating.run())
        try:
            yield beating
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def direct(place: Place = FROGS, person: str = "ada") -> Signal:
    return Signal(TriggerKind.DIRECT, place, NOON, person=person)


def reaction(person: str) -> Signal:
    return Signal(TriggerKind.REACTION, FROGS, NOON, person=person)


async def until(clock: ManualClock, happened: Callable[[], bool]) -> None:
    """Let second after second pass until something has happened."""
    async with asyncio.timeout(PATIENCE):
        while not happened():
            await clock.asleep()
            await asyncio.sleep(0)
            await clock.advance(SECOND)


async def dealt_with(beating: ProactiveScheduler) -> None:
    """Wait until no signal is left. Then the heart stands still, and no time has to pass."""
    async with asyncio.timeout(PATIENCE):
        while beating.pending_signals:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)


def question() -> MessageFeatures:
    return MessageFeatures.extract("how do I mount a cd?", "ada", NOON)


async def test_the_heart_stands_still_while_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with heart(tmp_path, clock, Mind(), lambda: DAILY_TOKENS) as beating:
        for _ in range(100):
            await asyncio.sleep(0)
        assert beating.ticks == 0
        beating.on_message(FROGS, question(), "terra")
        await until(clock, lambda: not beating.is_awake)
        assert clock.now() < NOON + HOUR / 2 + 5 * SECOND  # until nobody waits for an answer


async def test_signals_that_come_while_the_model_thinks_wait_and_survive_a_restart(
    tmp_path: Path,
) -> None:
    mind, clock = Mind(), ManualClock(NOON)
    async with heart(tmp_path, clock, mind) as beating:
        await beating.signal(reaction(person="ada"))
        assert (await mind.wake()).person == "ada"
        await beating.signal(reaction(person="bob"))
        await until(clock, lambda: beating.ticks > 5)
        assert mind.asked.empty()
        assert len(beating.pending_signals) == 2
    async with heart(tmp_path, clock, mind) as beating:  # ada's run was cut off: again
        assert (await mind.wake()).person == "ada"
        mind.ends.put_nowait(None)
        await until(clock, lambda: not mind.asked.empty())
        assert (await mind.wake()).person == "bob"
        mind.ends.put_nowait(None)
        await dealt_with(beating)
    async with Database.open(tmp_path / "irc.db") as database:
        assert (await AttentionStore(database).load()).signals == ()


async def test_ticks_go_on_and_other_channels_wake_while_the_model_thinks(tmp_path: Path) -> None:
    mind, clock = Mind(), ManualClock(NOON)
    async with heart(tmp_path, clock, mind) as beating:
        await beating.signal(direct())
        assert (await mind.wake()).place == FROGS
        await beating.signal(direct(TOADS))
        await until(clock, lambda: not mind.asked.empty())
        assert (await mind.wake()).place == TOADS


async def test_a_crash_in_the_middle_of_a_run_does_not_make_us_speak_twice(tmp_path: Path) -> None:
    mind, clock = Mind(), ManualClock(NOON)
    thought = Signal(TriggerKind.THOUGHT, FROGS, NOON, person="ada")
    async with heart(tmp_path, clock, mind) as beating:
        await beating.signal(thought)
        await mind.wake()
    async with heart(tmp_path, clock, mind) as beating:
        assert len(beating.pending_signals) == 1
        await until(clock, lambda: beating.ticks > 5)
        assert mind.asked.empty()
        await clock.advance(timedelta(minutes=30))  # the pause is over
        assert (await mind.wake()).kind is TriggerKind.THOUGHT


async def test_what_was_put_off_stays_put_off_over_a_restart(tmp_path: Path) -> None:
    mind, clock = Mind(), ManualClock(NOON)
    async with heart(tmp_path, clock, mind) as beating:
        await beating.signal(Signal(TriggerKind.THOUGHT, FROGS, NOON, person="ada"))
        await mind.wake()
        mind.ends.put_nowait(NOON + 2 * HOUR)
        await beating.mute(TOADS)
        await until(clock, lambda: not beating.running_count)
    async with heart(tmp_path, clock, mind) as beating:
        await clock.set(NOON + HOUR)
        await beating.signal(direct(TOADS))
        await until(clock, lambda: beating.ticks > 5)
        assert mind.asked.empty()
        await beating.unmute(TOADS)
        await beating.signal(Signal(TriggerKind.DIRECT, TOADS, clock.now(), person="ada"))
        await until(clock, lambda: not mind.asked.empty())
        assert (await mind.wake()).place == TOADS
        await clock.set(NOON + 2 * HOUR)
        await until(clock, lambda: not mind.asked.empty())
        assert (await mind.wake()).kind is TriggerKind.THOUGHT


async def test_a_newer_thought_about_somebody_takes_the_place_of_the_old_one(
    tmp_path: Path,
) -> None:
    clock = ManualClock(NOON)
    async with heart(tmp_path, clock, Mind()) as beating:
        for minutes in (30, 3):
            time = NOON + timedelta(minutes=minutes)
            await beating.signal(
                Signal(TriggerKind.THOUGHT, FROGS, time, person="ada"), replaces=True
            )
        assert len(beating.pending_signals) == 1
        await beating.drop(TriggerKind.THOUGHT, FROGS, "ada")
        assert not beating.pending_signals


async def test_questions_are_left_to_people_when_the_tokens_of_a_day_are_used(
    tmp_path: Path,
) -> None:
    today, mind, clock = DAILY_TOKENS, Mind(), ManualClock(NOON)
    async with heart(tmp_path, clock, mind, lambda: today) as beating:
        beating.on_message(FROGS, question(), "terra")
        await until(clock, lambda: clock.now() > NOON + HOUR / 6)
        assert mind.asked.empty()
        today = 0  # of the new day
        await until(clock, lambda: not mind.asked.empty())
        assert (await mind.wake()).kind is TriggerKind.CONTACT
