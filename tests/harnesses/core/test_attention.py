"""Questions that nobody answers: when the model is asked, how often, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from harnesses.core.attention import DAILY_TOKENS, OpenQuestion, UnaskedSpeech
from harnesses.core.services.shared_log import LoggedLine
from storage.chat_log.event import Identity, PendingEvent, Place
from storage.db.database import Database
from storage.queues.unasked import Silences
from terrarium import AttentionMixin, Config
from tests.kit.clock import ManualClock
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.room_tendril import ADA, PERSONA, TEA, RoomTendril, ready
from tests.kit.stores import Stores

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FROGS, TOADS = Place("irc", "#frogs"), Place("irc", "#toads")
ASKED = "ada: how do I mount a cd?"


class Watch:
    """The rule alone: `asked` are those whose questions the model was asked about."""

    def __init__(self, speech: UnaskedSpeech, clock: ManualClock) -> None:
        self.speech, self.clock = speech, clock
        self.asked: list[str] = []
        self.news = asyncio.Event()

    def hear(self, said: str, place: Place = FROGS, *, asked: bool = False) -> None:
        """Hear a line, written as `nick: text`."""
        nick, _, text = said.partition(": ")
        line = LoggedLine(place, Identity(nick, nick, "host"), text, PendingEvent(None))
        self.speech.on_line(line, asked=asked)

    async def passes(self, time: timedelta) -> list[str]:
        """Let time pass, and return whose questions the model was asked about since the last."""
        self.news.clear()
        self.hear(f"end: {self.clock.now()}?", Place("irc", f"#{self.clock.now()}"))
        while not self.news.is_set():
            await self.clock.advance(max(time, 5 * MINUTE))
            async with asyncio.timeout(PATIENCE):
                await self.news.wait()
        asked, self.asked = self.asked, []
        return asked


@asynccontextmanager
async def watching(database: Database, clock: ManualClock, tokens: int = 0) -> AsyncIterator[Watch]:
    async def ask(question: OpenQuestion) -> None:
        if question.nick == "end":
            watch.news.set()
        else:
            watch.asked.append(question.nick)

    speech = UnaskedSpeech(Silences(database), clock, lambda: tokens, ask)
    await speech.restore()
    watch = Watch(speech, clock)
    running = asyncio.create_task(speech.run())
    yield watch
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        ([ASKED], ["ada"]),
        (["ada: I mount a cd"], []),
        (["ada: how do I mount a cd"], ["ada"]),
        (["ada: anyone know why the build fails"], ["ada"]),
        (["ada: hi all, what time is the meeting"], ["ada"]),
        (["ada: wie starte ich nginx neu"], ["ada"]),
        (["ada: weiß jemand, ob der Server läuft"], ["ada"]),
        (["ada: what a day"], []),
        (["ada: when it rains it pours"], []),
        (["ada: anyone can do that"], []),
        ([ASKED, "bob: what I mean is that mount does it"], []),
        (["ada: see http://x.example/?a=b for it"], []),
        (["ada: bob: how do I mount a cd?"], []),  # to bob alone
        ([ASKED, "bob: with mount"], []),
        ([ASKED, "bob: ada: with mount?"], []),
        ([ASKED, "bob: do you mean Ada?"], ["bob"]),
        ([ASKED, "bob: carl: hello"], ["ada"]),  # a talk among others
        ([ASKED, "bob: and who sells them?"], ["ada"]),  # one at a time
        ([ASKED, "ada: please"], ["ada"]),
    ],
)
async def test_a_question_is_open_until_somebody_replies(
    lines: list[str], asked: list[str], tmp_path: Path
) -> None:
    async with (
        Database.open(tmp_path / "a.db") as database,
        watching(database, ManualClock(NOON)) as watch,
    ):
        for line in lines:
            watch.hear(line)
        assert await watch.passes(5 * MINUTE) == asked


async def test_whoever_asks_us_needs_no_other_answer_and_what_others_ask_us_is_none(
    tmp_path: Path,
) -> None:
    async with (
        Database.open(tmp_path / "a.db") as database,
        watching(database, ManualClock(NOON)) as watch,
    ):
        watch.hear("bob: what is a toad?", TOADS)
        for place in (FROGS, TOADS):
            watch.hear(ASKED, place)
            watch.hear(ASKED, place, asked=True)
        assert await watch.passes(5 * MINUTE) == ["bob"]


async def test_half_an_hour_of_pause_and_a_mute_survive_a_restart(stores: Stores) -> None:
    clock = ManualClock(NOON)
    async with Database.open(stores("irc")) as database:
        async with watching(database, clock) as watch:
            watch.hear(ASKED)
            assert await watch.passes(5 * MINUTE) == ["ada"]
            watch.hear("bob: and how do I open it?")
            assert await watch.passes(10 * MINUTE) == []
            await watch.speech.mute(TOADS, muted=True)
        async with watching(database, clock) as watch:
            watch.hear(ASKED, TOADS)
            watch.hear("bob: and how do I open it?")
            assert await watch.passes(20 * MINUTE) == []
            watch.hear("bob: and how do I open it?")
            await watch.speech.mute(TOADS, muted=False)
            watch.hear(ASKED, TOADS)
            assert await watch.passes(5 * MINUTE) == ["bob", "ada"]


async def test_once_a_million_tokens_are_used_questions_are_left_to_people(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with (
        Database.open(tmp_path / "a.db") as database,
        watching(database, clock, tokens=DAILY_TOKENS) as watch,
    ):
        watch.hear(ASKED)
        await clock.asleep_until(NOON + 5 * MINUTE)
        await clock.advance(5 * MINUTE)
        while watch.speech.open:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        assert watch.asked == []


class Attentive(AttentionMixin, RoomTendril):
    name: ClassVar[str] = "attentive"


@pytest.mark.parametrize("answer", ["At six.", '{"response": ""}', None])
async def test_a_tendril_of_anybodys_may_answer_or_stay_silent(
    answer: str | None, tmp_path: Path
) -> None:
    clock = ManualClock(NOON)
    async with ScriptedOpenAI() as script:
        agent = {"api_url": script.url, "timezone": "UTC", "personas": {"attentive": PERSONA}}
        async with ready(Attentive(Config({"agent": agent}, None, tmp_path), clock)) as room:
            script.say(answer) if answer else script.fail(400, "no")
            room.listen(await room.hear("den", ADA, "is this private?"))
            room.listen(await room.hear(TEA, ADA, "[nolog] and this is not logged?"))
            assert not room.unasked.open
            room.listen(await room.hear(TEA, ADA, "does anybody know when it boils?"))
            await clock.asleep_until(NOON + 5 * MINUTE)
            await clock.advance(5 * MINUTE)
            if answer == "At six.":
                assert await room.next_spoken() == (TEA, answer)
            await script.arrived()
            assert room.spoken.empty()
        (request,) = script.requests
        assert "ada asked all a few minutes ago" in request["messages"][-1]["content"]
