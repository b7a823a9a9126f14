"""Reminders of a tendril that is not IRC's: by command, by the model, after a restart."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage.queues.reminders import Reminders
from terrarium import ReminderTools
from tests.kit.clock import ManualClock
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.room_tendril import ADA, BOB, TEA, room_tendril, rooms_config

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def test_a_reminder_is_said_where_it_was_asked_for_also_after_a_restart(
    tmp_path: Path,
) -> None:
    config = rooms_config(tmp_path)
    async with room_tendril(config, ManualClock(NOON)) as tendril:
        line = await tendril.hear(TEA, ADA, "in 20 minutes the oven")
        requester = tendril.requester(line)
        time, text = await tendril.remind.parse_time(requester, line.text)
        answer = await tendril.remind.add(requester, time, text)
        assert answer == "I will remind you on Fri 2026-05-01 at 12:20 UTC (reminder 1)."
        bobs = tendril.requester(await tendril.hear(TEA, BOB, "?"))
        assert await tendril.remind.list_text(bobs) == "You have no reminders."
        assert not await tendril.remind.cancel(bobs, 1)
    clock = ManualClock(NOON + timedelta(minutes=1))
    async with room_tendril(config, clock) as tendril:
        await clock.asleep_until(NOON + timedelta(minutes=20))
        await clock.advance(timedelta(minutes=19))
        assert await tendril.next_spoken() == (TEA, "ada: reminder: the oven")


async def test_a_paused_reminder_is_left_out_and_comes_again_at_its_next_time(
    tmp_path: Path,
) -> None:
    clock = ManualClock(NOON)
    async with room_tendril(rooms_config(tmp_path), clock) as tendril:
        for words in ("every hour the oven", "in 20 minutes tea", "in 70 minutes cake"):
            requester = tendril.requester(line := await tendril.hear(TEA, ADA, words))
            time, text = await tendril.remind.parse_time(requester, line.text)
            await tendril.remind.add(requester, time, text)
        kept = Reminders(tendril.database)
        for number in (1, 2):
            await kept.pause(number, True)
        await clock.asleep_until(NOON + timedelta(minutes=20))
        await clock.advance(timedelta(minutes=70))
        assert await tendril.next_spoken() == (TEA, "ada: reminder: cake")
        assert await kept.get(2)  # waits to be resumed
        await kept.pause(1, False)
        await clock.asleep_until(NOON + timedelta(hours=2))
        await clock.advance(timedelta(minutes=50))
        assert await tendril.next_spoken() == (TEA, "ada: reminder: the oven")


async def test_the_model_sets_a_reminder_in_the_name_of_who_asks(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with (
        ScriptedOpenAI() as script,
        room_tendril(rooms_config(tmp_path, script.url), clock) as tendril,
    ):
        script.call("remind", {"when": "in 20 minutes", "text": "tea"}).say("I will.")
        line = await tendril.hear("ada", ADA, "my tea, in 20 minutes, please remind me")
        tools = [ReminderTools(tendril.remind, tendril.requester(line))]
        result = await tendril.turn(replace(tendril.request(line), tools=tools))
        assert result.text == "I will."
        await clock.advance(timedelta(minutes=20))
        assert await tendril.next_spoken() == ("ada", "reminder: tea")
