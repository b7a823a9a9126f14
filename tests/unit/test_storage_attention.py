"""What attention keeps: every signal until it is dealt with, also over a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.attention_state import AttentionStore, Past, PutOff, Signal

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FROGS, TOADS = Place("irc", "#frogs"), Place("irc", "#toads")


async def test_signals_wait_in_order_over_a_restart_until_they_are_done(tmp_path: Path) -> None:
    async with Database.opened(tmp_path / "irc.db") as database:
        store = AttentionStore(database)
        first = await store.put(Signal("thought", FROGS, NOON, 0.5, "ada", 7))
        second = await store.put(Signal("plugin_event", FROGS, NOON))
        third = await store.put(Signal("plugin_event", FROGS, NOON))
        await store.done([second])
    async with Database.opened(tmp_path / "irc.db") as database:
        assert (await AttentionStore(database).past()).signals == (first, third)


async def test_a_restart_finds_energy_pauses_and_what_was_put_off(tmp_path: Path) -> None:
    hour = NOON + timedelta(hours=1)
    deferred, suppressed = PutOff("thought", FROGS, 0.4, hour), PutOff("thought", TOADS)
    async with Database.opened(tmp_path / "irc.db") as database:
        store = AttentionStore(database)
        assert await store.past() == Past()
        await store.put_off(PutOff("thought", FROGS, 0.1, NOON))
        await store.put_off(deferred)
        await store.put_off(suppressed)
        await store.contacted(FROGS, NOON)
        await store.rest(0.625, NOON)
    async with Database.opened(tmp_path / "irc.db") as database:
        store = AttentionStore(database)
        assert await store.past() == Past(0.625, NOON, {FROGS: NOON}, (deferred, suppressed))
        await store.lift(TOADS)
        assert (await store.past()).put_off == (deferred,)


async def test_what_nobody_has_dealt_with_for_a_day_is_dropped(tmp_path: Path) -> None:
    async with Database.opened(tmp_path / "irc.db") as database:
        store = AttentionStore(database)
        await store.put(Signal("thought", FROGS, NOON - timedelta(hours=25)))
        young = await store.put(Signal("thought", FROGS, NOON - timedelta(hours=23)))
        await store.put_off(PutOff("thought", FROGS, 0.4, NOON - timedelta(seconds=1)))
        await store.contacted(FROGS, NOON - timedelta(hours=25))
        await store.rest(1.0, NOON)
        assert await store.past() == Past(1.0, NOON, signals=(young,))
