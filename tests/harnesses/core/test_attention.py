"""Questions that nobody answers: when the model is asked, how often, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from harnesses.core.attention import DAILY_TOKENS, Attention, Wake, change
from harnesses.core.services.shared_log import LoggedLine
from harnesses.core.tendril.turn import TurnResult
from storage.chat_log.event import Identity, PendingEvent, Place
from storage.db.database import Database
from storage.queues.unasked import Signal, SignalKind, Signals
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

    def __init__(self, attention: Attention, clock: ManualClock) -> None:
        self.attention, self.clock = attention, clock
        self.asked: list[str] = []
        self.news = asyncio.Event()

    def hear(self, said: str, place: Place = FROGS, *, asked: bool = False, nick: str = "") -> None:
        """Hear a line, written as `nick: text`."""
        who, _, text = said.partition(": ")
        line = LoggedLine(place, Identity(who, who, "host"), text, PendingEvent(None))
        self.attention.on_line(line, asked=asked, nick=nick)

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
async def watching(database: Database, clock: ManualClock) -> AsyncIterator[Watch]:
    async def wake(woken: Wake) -> TurnResult:
        (signal,) = woken.signals
        if signal.nick == "end":
            watch.news.set()
        else:
            watch.asked.append(signal.nick)
        return TurnResult("")

    attention = Attention(database, clock, int, lambda: {"question": 2}, wake)
    await attention.restore()
    watch = Watch(attention, clock)
    running = asyncio.create_task(attention.run())
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
        # Whoever talks with somebody else replies to them.
        (["bob: hi", "carl: bob: hello", ASKED, "bob: with mount"], ["ada"]),
        (["bob: hi", ASKED, "ada: bob: do you know?"], []),
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
            await watch.attention.mute(TOADS, muted=True)
        async with watching(database, clock) as watch:
            watch.hear(ASKED, TOADS)
            watch.hear("bob: and how do I open it?")
            assert await watch.passes(20 * MINUTE) == []
            watch.hear("bob: and how do I open it?")
            await watch.attention.mute(TOADS, muted=False)
            watch.hear(ASKED, TOADS)
            assert await watch.passes(5 * MINUTE) == ["bob", "ada"]


def signals(kind: SignalKind, count: int, *, known: bool = False) -> list[Signal]:
    return [Signal(NOON, kind, FROGS, kind, ended=NOON if known else None) for _ in range(count)]


@pytest.mark.parametrize(
    ("known", "new", "felt"),
    [(0, 0, 0), (0, 1, 1), (0, 3, 2), (1, 1, 0.58), (7, 1, 0.17), (7, 8, 1)],
)
def test_a_change_is_felt_as_a_ratio_to_what_is_known(known: int, new: int, felt: float) -> None:
    both = signals("mention", known, known=True) + signals("mention", new)
    assert change(both, NOON) == pytest.approx(felt, abs=0.01)
    assert change(both, NOON + 30 * MINUTE) == 0


@pytest.mark.parametrize(
    ("weights", "share", "given", "reasons"),
    [
        ({"question": 2}, 0.0, [*signals("mention", 9), *signals("job", 9)], []),
        ({"question": 2}, 0.999, signals("question", 1), ["question"]),
        ({"question": 2}, 1.0, signals("question", 1), []),
        ({"mention": 1.5}, 0.4, signals("mention", 1), ["mention"]),
        ({"mention": 1.5}, 0.6, signals("mention", 1), []),
        ({"mention": 1.5}, 0.6, signals("mention", 2), ["mention", "mention"]),
        ({"error": 1, "job": 1}, 0.9, [*signals("job", 1), *signals("error", 1)], ["job", "error"]),
        ({"thought": 2}, 1.0, signals("thought", 5), []),
        ({"mention": 2}, 0, [*signals("mention", 20, known=True), *signals("mention", 1)], []),
    ],
)
async def test_what_signals_weigh_together_wakes_the_model_while_there_are_tokens(
    weights: Mapping[SignalKind, float],
    share: float,
    given: list[Signal],
    reasons: list[str],
    tmp_path: Path,
) -> None:
    async with Database.open(tmp_path / "a.db") as database:
        used = int(share * DAILY_TOKENS)
        attention = Attention(database, ManualClock(NOON), lambda: used, lambda: weights, no_wake)
        for each in given:
            attention.feel(replace(each))
        assert [each.kind for wake in attention.beat() for each in wake.signals] == reasons
        if reasons:  # then there is a pause, whatever is felt
            attention.feel(replace(given[0], place=FROGS))
            assert attention.beat() == []


async def test_mentions_reactions_and_silence_are_felt_beside_questions(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with Database.open(tmp_path / "a.db") as database:
        attention = Attention(database, clock, int, lambda: {"mention": 2}, no_wake)
        watch = Watch(attention, clock)
        watch.hear("ada: I like Terra", nick="terra")
        (wake,) = attention.beat()
        assert [each.kind for each in wake.signals] == ["mention"]
        watch.hear("ada: good night")
        await clock.advance(29 * MINUTE)
        attention.beat()
        await clock.advance(MINUTE)
        attention.beat()
    felt = [attention.changed.get_nowait() for _ in range(attention.changed.qsize())]
    assert [each.kind for each in felt][-1] == "silence"
    assert felt[-1].about == "nobody has spoken for 30 minutes"


async def no_wake(_: Wake) -> TurnResult:
    return TurnResult("")


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
            assert not room.attention.is_waiting(Place(room.name, TEA))
            room.listen(await room.hear(TEA, ADA, "does anybody know when it boils?"))
            await clock.asleep_until(NOON + timedelta(seconds=1))
            await clock.advance(5 * MINUTE)
            if answer == "At six.":
                assert await room.next_spoken() == (TEA, answer)
            await script.arrived()
            assert room.spoken.empty()
        (request,) = script.requests
        assert "ada asked all a few minutes ago" in request["messages"][-1]["content"]


async def test_another_tendril_gives_a_reason_to_speak_and_all_is_kept_without_words(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script:
        agent = {"api_url": script.url, "timezone": "UTC", "attention": {"job": 2}}
        agent["personas"] = {"attentive": PERSONA, "rooms": PERSONA}
        config = Config({"agent": agent}, None, tmp_path)
        clock = ManualClock(NOON)
        attentive, rooms = Attentive(config, clock), RoomTendril(config, clock)
        async with ready(attentive) as room, ready(rooms) as other:
            script.say("Have you read it?")
            await other.signal("job", room.log.place("den"), "this is private")
            await other.signal("job", Place("elsewhere", TEA), "the digest is there")
            await other.signal("job", room.log.place(TEA), "the digest is there")
            await clock.asleep_until(NOON + timedelta(seconds=10))
            await clock.advance(timedelta(seconds=10))
            assert await room.next_spoken() == (TEA, "Have you read it?")
            store = Signals(room.log.database)
            async for _ in room.log.database.changes():
                if kept := [each for each in await store.since(NOON) if each.paste]:
                    break
        (request,) = script.requests
        assert "Something has happened here: the digest is there." in str(request["messages"][-1])
        assert (kept[0].place, kept[0].outcome) == (
            room.log.place(TEA),
            "woke the model: an answer",
        )
