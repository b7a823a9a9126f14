"""Speaking unasked on a real channel: when, to whom, how often, and above all when not."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from harnesses.irc.tendril import IrcTendril
from llm.attention.attention import TriggerKind
from tests.kit.clock import ManualClock
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, kept_turns
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
STEP, MINUTE = timedelta(seconds=15), timedelta(minutes=1)
QUESTION = "how do I mount a cd?"


class World:
    """A room with alice and bob, a tendril in it, its clock and its model."""

    def __init__(
        self,
        tendril: IrcTendril,
        clock: ManualClock,
        script: ScriptedOpenAI,
        alice: IrcClient,
        bob: IrcClient,
    ) -> None:
        self.tendril, self.clock, self.script = tendril, clock, script
        self.alice, self.bob = alice, bob

    async def says(self, client: IrcClient, text: str, room: str = ROOM) -> None:
        """Say something, which is in the log afterwards."""
        await client.say(room, text)
        await client.say(ROOM, ".ping")
        await client.expect("pong")

    async def passes(self, time: timedelta, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass in steps, while the heart beats, at most `until` something."""
        end = self.clock.now() + time
        while self.clock.now() < end and not until():
            before = self.beats + 1
            await self.clock.advance(STEP)
            await self.until(functools.partial(self._has_beaten, before))

    def _has_beaten(self, times: int) -> bool:
        """Whether the heart has beaten so often, or rests: it may begin to at any moment."""
        return self.beats >= times or not self.tendril.events.proactive.scheduler.is_awake

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for something that takes no time of the clock's."""
        async with asyncio.timeout(20):
            while not happened():  # noqa: ASYNC110 - many things are waited for
                await asyncio.sleep(0.001)

    @property
    def beats(self) -> int:
        return self.tendril.events.proactive.scheduler.ticks

    def waits(self, kind: TriggerKind) -> int:
        """How many signals of a kind wait."""
        return sum(
            signal.kind == kind
            for signal in self.tendril.events.proactive.scheduler.pending_signals
        )

    @property
    def woken(self) -> int:
        """How often there was reason to ask the model."""
        return len(self.tendril.events.proactive.scheduler.recent_triggers)

    @property
    def asked(self) -> int:
        """How often the model was asked."""
        return len(self.script.requests)

    def said(self) -> list[str]:
        """What the bot has said that bob has seen, but for its pongs."""
        found = [re.search(rf"^:Terra!\S+ PRIVMSG {ROOM} :(.*)$", line) for line in self.bob.lines]
        return [match[1] for match in found if match and "pong" not in match[1]]


@asynccontextmanager
async def world(data: Path, proactive: str, **irc: Any) -> AsyncIterator[World]:
    clock = ManualClock(NOON)
    keys: dict[str, Any] = {"channel": {ROOM: {"proactive": proactive}}, **irc}
    async with (
        ScriptedOpenAI() as script,
        embedded_ircd() as ircd,
        irc_client(ircd.port, "alice") as alice,
        irc_client(ircd.port, "bob") as bob,
    ):
        for client in (alice, bob):
            await client.join(ROOM)
        config = irc_config(data, ircd.port, script.url, irc=keys)
        async with irc_tendril(config, clock) as tendril:
            yield World(tendril, clock, script, alice, bob)


async def test_a_question_that_nobody_answers_is_answered_and_no_other_for_half_an_hour(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, "on") as it:
        it.script.say("alice: mount /cdrom")
        await it.says(it.alice, QUESTION)
        await it.passes(10 * MINUTE, lambda: it.woken > 0)
        await it.alice.expect(rf"PRIVMSG {ROOM} :alice: mount /cdrom$")
        assert 5 * MINUTE < it.clock.now() - NOON < 6 * MINUTE
        assert "the question that alice asked all" in str(it.script.requests[0]["messages"])
        assert it.script.headers[0]["x-priority"] == "background"
        await it.says(it.bob, "and how do I open it?")
        await it.passes(20 * MINUTE)
        assert it.woken == it.asked == 1


async def test_with_proactive_off_nothing_wakes_and_the_heart_stands_still(tmp_path: Path) -> None:
    async with world(tmp_path, "off") as it:
        await it.says(it.alice, QUESTION)
        await it.says(it.bob, "I wonder whether Terra knows")
        await it.passes(60 * MINUTE)
        assert (it.beats, it.woken, it.asked) == (0, 0, 0)


async def test_in_test_mode_it_only_notes_what_it_would_have_said(tmp_path: Path) -> None:
    async with world(tmp_path, "test", admins=["bob!*@*"]) as it:
        it.script.say("mount /cdrom")
        await it.says(it.alice, QUESTION)
        with capture_logs() as logs:
            await it.passes(10 * MINUTE, lambda: it.woken > 0)
            await it.until(lambda: "would_say" in str(logs))
        (noted,) = [line for line in logs if line["event"] == "attention.would_say"]
        assert noted["text"] == "alice: mount /cdrom"
        await it.bob.say(ROOM, ".status")
        await it.bob.expect(
            r"0 signals wait, last woken at 12:05 UTC by proactive_contact;"
            r" would have said: alice: mount /cdrom$"
        )
        assert not any(line.startswith("alice:") for line in it.said())


async def test_who_names_it_in_passing_may_get_a_word(tmp_path: Path) -> None:
    async with world(tmp_path, "on") as it:
        it.script.say("I do.")
        await it.says(it.bob, "I wonder whether Terra knows")
        await it.until(lambda: it.waits(TriggerKind.DIRECT) > 0)
        await it.passes(MINUTE, lambda: it.woken > 0)
        await it.bob.expect(rf"PRIVMSG {ROOM} :bob: I do\.$")
        asked = str(it.script.requests[0]["messages"])
        assert "bob did not ask you, but named you in passing: I wonder whether Terra" in asked
        assert '{"response": ""}' in asked
        (turn,) = await kept_turns(it.tendril, f"irc/{ROOM}/bob")
        assert turn.messages[-1]["content"] == "I do."


async def test_passing_mentions_may_be_met_with_silence_and_count_for_the_pause(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, "on") as it:
        it.script.say('{"response": ""}')
        await it.says(it.bob, "I think Terra was down yesterday")
        await it.until(lambda: it.waits(TriggerKind.DIRECT) > 0)
        await it.passes(MINUTE, lambda: it.woken > 0)
        await it.script.arrived(1)
        await it.until(lambda: not it.tendril.events.proactive.scheduler.running_count)
        await it.says(it.alice, "poor Terra")
        await it.passes(20 * MINUTE)
        assert (it.asked, it.said()) == (1, [])


@pytest.mark.parametrize("who", ["bot", "ignored", "opted out", "marked", "private", "unlogged"])
async def test_it_does_not_look_up_because_of(who: str, tmp_path: Path) -> None:
    changed: dict[str, dict[str, Any]] = {
        "bot": {"bots": ["*!alice@*", "*!~alice@*"]},
        "ignored": {"ignore": ["alice!*@*"]},
        "unlogged": {"channel": {ROOM: {"proactive": "on", "logging": False}}},
    }
    async with world(tmp_path, "on", **changed.get(who, {})) as it:
        if who == "opted out":
            await it.alice.say(ROOM, ".nolog")
            await it.alice.expect("NOTICE")
        for text in (QUESTION, "I wonder whether Terra knows"):
            marked = f"{text} [nolog]" if who == "marked" else text
            await it.alice.say("Terra" if who == "private" else ROOM, marked)
        await it.alice.settle()
        await it.says(it.bob, "ok")
        await it.passes(20 * MINUTE)
        assert it.woken == 0
        assert it.said() == []


async def test_once_kicked_it_is_silent_until_an_admin_wants_it_again(tmp_path: Path) -> None:
    async with world(tmp_path, "on", admins=["bob!*@*"], rejoin_after=0) as it:
        await it.alice.send(f"KICK {ROOM} Terra :enough")
        await it.bob.expect("KICK .* Terra ")
        await it.bob.expect(":Terra!.* JOIN ")
        await it.tendril.networks["irc"].all_joined.wait()
        await it.says(it.alice, QUESTION)
        await it.passes(25 * MINUTE)
        assert it.woken == 0
        await it.bob.say(ROOM, f".set {ROOM} proactive on")
        await it.bob.expect("proactive is on")
        await it.says(it.alice, "nobody knows? how do I mount a cd?")
        await it.passes(10 * MINUTE, lambda: it.woken > 0)
        assert it.woken == 1


async def test_an_apology_is_never_said_unasked(tmp_path: Path) -> None:
    async with world(tmp_path, "on") as it:
        it.script.fail(400, "no")
        await it.says(it.alice, QUESTION)
        await it.passes(10 * MINUTE, lambda: it.woken > 0)
        await it.script.arrived(1)
        await it.passes(5 * MINUTE)
        assert it.said() == []


async def test_the_model_may_stay_silent(tmp_path: Path) -> None:
    async with world(tmp_path, "on") as it:
        it.script.say('{"response": ""}')
        await it.says(it.alice, QUESTION)
        await it.passes(10 * MINUTE, lambda: it.woken > 0)
        await it.script.arrived(1)
        await it.passes(10 * MINUTE)
        assert it.said() == []


async def test_unasked_nothing_is_done_for_anybody(tmp_path: Path) -> None:
    async with world(tmp_path, "on") as it:
        it.script.call("remember", {"key": "cat", "value": "Miez"}).say('{"response": ""}')
        await it.says(it.bob, "my cat is called Miez, does Terra know that?")
        await it.until(lambda: it.waits(TriggerKind.DIRECT) > 0)
        await it.passes(MINUTE, lambda: it.woken > 0)
        await it.script.arrived(2)
        assert "has not said that" in str(it.script.requests[1]["messages"][-1]["content"])
        assert await it.tendril.memory.memories.facts(f"irc/{ROOM}", "bob") == []


async def test_what_the_model_puts_off_comes_up_when_its_time_has_come(tmp_path: Path) -> None:
    async with world(tmp_path, "on") as it:
        it.script.call("defer", {"signal": "cd", "hours": 2, "reason": "they are busy"})
        await it.says(it.bob, "I wonder whether Terra knows")
        await it.until(lambda: it.waits(TriggerKind.DIRECT) > 0)
        await it.passes(MINUTE, lambda: it.woken > 0)
        await it.until(lambda: not it.tendril.events.proactive.scheduler.running_count)
        await it.passes(115 * MINUTE)
        assert (it.asked, it.said()) == (1, [])
        it.script.say("I know now.")
        await it.passes(10 * MINUTE, lambda: it.woken > 1)
        await it.bob.expect("bob: I know now")


async def test_an_answer_that_it_asked_for_needs_no_address(tmp_path: Path) -> None:
    async with world(tmp_path, "on") as it:
        it.script.say('{"response": "Which version?", "status": "awaiting_answer"}')
        await it.alice.say(ROOM, f".terrarium {QUESTION}")
        await it.alice.expect("alice: Which version\\?$")
        await it.until(lambda: it.waits(TriggerKind.THOUGHT) > 0)
        it.script.say('{"response": "Then mount /cdrom.", "status": "closed"}')
        await it.says(it.bob, "what is it about")
        await it.says(it.alice, "the newest")
        await it.until(lambda: it.waits(TriggerKind.REACTION) > 0)
        await it.passes(MINUTE, lambda: it.woken > 0)
        await it.alice.expect("alice: Then mount /cdrom")
        assert "alice asks: the newest" in str(it.script.requests[1]["messages"][-1])
        await it.says(it.alice, "thanks")  # asked for no more
        assert it.woken == 1


async def test_it_comes_back_to_one_who_has_not_answered_and_not_after_clear(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, "on") as it:
        for client in (it.alice, it.bob):
            it.script.say('{"response": "Which version?", "status": "awaiting_answer"}')
            await client.say(ROOM, f".terrarium {QUESTION}")
            await client.expect(f"{client.nick}: Which version\\?$")
        await it.until(lambda: it.waits(TriggerKind.THOUGHT) == 2)
        await it.bob.say(ROOM, ".clear")
        await it.bob.expect("Forgotten")
        it.script.say("Did you find out?")
        await it.passes(2 * MINUTE)
        assert it.woken == 0
        await it.passes(4 * MINUTE, lambda: it.woken > 0)
        await it.alice.expect(rf"PRIVMSG {ROOM} :alice: Did you find out\?$")
        await it.passes(40 * MINUTE)
        assert it.asked == 3
