"""A tendril of anybody's speaks unasked: when there is reason to, and with the model's consent."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from storage.chat_log.event import Place
from storage.db.errors import Unavailable
from storage.queues.attention_state import AttentionStore
from terrarium import AttentionMixin, Config
from tests.kit.clock import ManualClock
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.room_tendril import ADA, BOB, PERSONA, TEA, RoomTendril, ready

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SILENT = '{"response": ""}'


class Attentive(AttentionMixin, RoomTendril):
    name: ClassVar[str] = "attentive"


def config(data: Path, url: str) -> Config:
    agent = {"api_url": url, "timezone": "UTC", "personas": {"attentive": PERSONA}}
    return Config({"agent": agent}, None, data)


async def settled(tendril: Attentive) -> None:
    """Return when no signal waits and no run of the model goes on."""
    async with asyncio.timeout(PATIENCE):
        while tendril.scheduler.pending_signals or tendril.scheduler.running_count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_signal_has_the_model_say_something_and_then_there_is_a_pause(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, ready(Attentive(config(tmp_path, script.url))) as room:
        script.say("I boil at six.")
        await room.signal(await room.hear(TEA, ADA, "Terra may know when it boils"))
        assert await room.next_spoken() == (TEA, "I boil at six.")
        await settled(room)
        await room.signal(await room.hear(TEA, BOB, "Terra again"))
        assert room.scheduler.pending_signals == []
    (request,) = script.requests
    assert "ada did not ask you, but named you in passing" in request["messages"][-1]["content"]
    async with ScriptedOpenAI() as script, ready(Attentive(config(tmp_path, script.url))) as room:
        await room.signal(await room.hear(TEA, BOB, "Terra, after a restart"))
        assert room.scheduler.pending_signals == []


async def test_the_model_may_stay_silent(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, ready(Attentive(config(tmp_path, script.url))) as room:
        script.say(SILENT)
        await room.signal(await room.hear(TEA, ADA, "Terra is here"))
        await script.arrived()
        await settled(room)
        assert room.spoken.empty()


async def test_in_private_and_of_what_is_not_logged_nothing_is_signalled(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, ready(Attentive(config(tmp_path, script.url))) as room:
        await room.signal(await room.hear("den", ADA, "Terra is here"))
        await room.signal(await room.hear(TEA, ADA, "[nolog] Terra is here"))
        assert room.scheduler.pending_signals == []
        assert not room.scheduler.is_awake


async def test_a_question_that_nobody_answers_is_looked_at_after_five_minutes(
    tmp_path: Path,
) -> None:
    clock = ManualClock(NOON)
    async with (
        ScriptedOpenAI() as script,
        ready(Attentive(config(tmp_path, script.url), clock)) as room,
    ):
        script.say("At six.")
        room.listen(await room.hear(TEA, ADA, "does anybody know when it boils?"), "Terra")
        await clock.asleep_until(NOON + timedelta(seconds=1))
        await clock.advance(timedelta(minutes=6))
        assert await room.next_spoken() == (TEA, "At six.")


async def test_what_could_not_be_said_because_of_an_error_is_tried_again_later(
    tmp_path: Path,
) -> None:
    class Broken(Attentive):
        async def say(self, place: Place, text: str) -> bool:
            raise Unavailable("the disk is full")

    async with ScriptedOpenAI() as script, ready(Broken(config(tmp_path, script.url))) as room:
        script.say("I boil at six.")
        await room.signal(await room.hear(TEA, ADA, "Terra may know when it boils"))
        stored = AttentionStore(room.database)
        async with asyncio.timeout(PATIENCE):
            while not (await stored.load()).put_off:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert [signal.person for signal in room.scheduler.pending_signals] == [ADA.nick]
