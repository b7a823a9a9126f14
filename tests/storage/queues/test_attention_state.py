"""What attention keeps: every signal until it is dealt with, also over a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.attention_state import AttentionState, AttentionStore, Signal, Snooze
from tests.kit.stores import Stores

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FROGS, TOADS = Place("irc", "#frogs"), Place("irc", "#toads")


async def test_signals_wait_in_order_over_a_restart_until_they_are_done(stores: Stores) -> None:
    async with Database.open(stores("irc")) as database:
        store = AttentionStore(database)
        first = await store.add_signal(Signal("thought", FROGS, NOON, "ada", 7))
        second = await store.add_signal(Signal("plugin_event", FROGS, NOON))
        third = await store.add_signal(Signal("plugin_event", FROGS, NOON))
        await store.mark_done([second])
    async with Database.open(stores("irc")) as database:
        assert (await AttentionStore(database).load()).signals == (first, third)


async def test_a_restart_finds_pauses_and_what_was_put_off(stores: Stores) -> None:
    hour = NOON + timedelta(hours=1)
    deferred, suppressed = Snooze("thought", FROGS, hour), Snooze("thought", TOADS)
    async with Database.open(stores("irc")) as database:
        store = AttentionStore(database)
        assert await store.load() == AttentionState()
        await store.put_off(Snooze("thought", FROGS, NOON))
        await store.put_off(deferred)
        await store.put_off(suppressed)
        await store.record_contact(FROGS, NOON)
        await store.expire(NOON + timedelta(seconds=1))
    async with Database.open(stores("irc")) as database:
        store = AttentionStore(database)
        assert await store.load() == AttentionState({FROGS: NOON}, (deferred, suppressed))
        await store.lift(TOADS)
        assert (await store.load()).put_off == (deferred,)


async def test_what_nobody_has_dealt_with_for_a_day_is_dropped(stores: Stores) -> None:
    async with Database.open(stores("irc")) as database:
        store = AttentionStore(database)
        await store.add_signal(Signal("thought", FROGS, NOON - timedelta(hours=25)))
        young = await store.add_signal(Signal("thought", FROGS, NOON - timedelta(hours=23)))
        await store.put_off(Snooze("thought", FROGS, NOON - timedelta(seconds=1)))
        await store.record_contact(FROGS, NOON - timedelta(hours=25))
        await store.expire(NOON)
        assert await store.load() == AttentionState(signals=(young,))
