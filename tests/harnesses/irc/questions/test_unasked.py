"""Speaking unasked on a real channel: when, to whom, how often, and above all when not."""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from storage.chat_log.event import Place
from storage.queues.unasked import Signals
from tests.kit.irc_client import IrcClient
from tests.kit.irc_scene import NOON, Scene
from tests.kit.irc_tendril import ROOM
from tests.kit.patience import PATIENCE, until

MINUTE = timedelta(minutes=1)
QUESTION = "how do I mount a cd?"


class World(Scene):
    """The room, while time passes."""

    async def says(self, client: IrcClient, text: str, room: str = ROOM) -> None:
        """Say something, which is in the log afterwards."""
        await client.say(room, text)
        await client.ask(".ping", "pong")

    async def passes(self, time: timedelta) -> None:
        """Let time pass at once, and all that it brings about begin."""
        await self.clock.advance(time)
        await self.says(self.alice, ".version")

    async def waits(self) -> None:
        """Wait until it waits with a question."""
        await self.clock.asleep_until(self.clock.now() + timedelta(seconds=1))

    @property
    def asked(self) -> int:
        """How often the model was asked."""
        return len(self.script.requests)

    def said(self) -> list[str]:
        """What the bot has said that bob has seen, but for its pongs."""
        found = [re.search(rf"^:Terra!\S+ PRIVMSG {ROOM} :(.*)$", line) for line in self.bob.lines]
        return [match[1] for match in found if match and "pong" not in match[1]]


def world(data: Path, proactive: str, **irc: Any) -> AbstractAsyncContextManager[World]:
    return World.open(data, irc={"channel": {ROOM: {"proactive": proactive}}, **irc})


async def test_an_open_question_is_answered_and_no_other_for_half_an_hour(tmp_path: Path) -> None:
    async with world(tmp_path, "on") as it:
        it.script.say("alice: mount /cdrom")
        await it.says(it.alice, QUESTION)
        await it.waits()
        await it.passes(4 * MINUTE)
        assert it.asked == 0
        await it.passes(MINUTE)
        await it.alice.expect(rf"PRIVMSG {ROOM} :alice: mount /cdrom$")
        asked = it.script.requests[0]["messages"][-1]["content"]
        assert f"alice asked all a few minutes ago, and nobody has answered: {QUESTION}" in asked
        assert it.script.headers[0]["x-priority"] == "background"
        assert "x-person" not in it.script.headers[0]
        await it.says(it.bob, "and how do I open it?")
        await it.passes(20 * MINUTE)
        assert it.asked == 1


async def test_in_test_mode_it_only_notes_what_it_would_have_said(tmp_path: Path) -> None:
    async with world(tmp_path, "test", admins=["bob!*@*"]) as it:
        it.script.say("mount /cdrom")
        await it.says(it.alice, QUESTION)
        await it.waits()
        with capture_logs() as logs:
            await it.passes(5 * MINUTE)
            await until(lambda: "would_say" in str(logs))
        (noted,) = [line for line in logs if line["event"] == "attention.would_say"]
        assert noted["text"] == "alice: mount /cdrom"
        await it.bob.say(ROOM, ".status")
        await it.bob.expect("last looked at one at 12:05 UTC; would have said: alice: mount /cdrom")
        assert not any(line.startswith("alice: mount") for line in it.said())
        for _ in range(2):
            await it.says(it.alice, "I like Terra")
        kinds: list[str] = []
        async with asyncio.timeout(PATIENCE):
            while kinds.count("mention") < 2:
                felt = await Signals(it.tendril.log.database).since(NOON)
                kinds = [each.kind for each in felt]
        assert "reaction" not in kinds  # it has not spoken


@pytest.mark.parametrize("why", ["error", "silence", "cleared", "gone"])
async def test_nothing_is_said_after(why: str, tmp_path: Path) -> None:
    async with world(tmp_path, "on") as it:
        it.script.fail(400, "no") if why == "error" else it.script.say('{"response": ""}')
        await it.says(it.bob, QUESTION)
        await it.waits()
        if why == "cleared":
            await it.says(it.bob, ".clear")
        elif why == "gone":
            await it.bob.send(f"PART {ROOM}")
            await it.alice.expect("bob!.* PART")
        await it.passes(5 * MINUTE)
        if why in ("error", "silence"):
            await it.script.arrived(1)
        await it.passes(20 * MINUTE)
        said = [line for line in it.said() if line.startswith("bob: ")]
        assert not [line for line in said if "Forgotten" not in line]
        assert it.asked == (why in ("error", "silence"))


@pytest.mark.parametrize(
    "who", ["off", "bot", "ignored", "opted out", "marked", "private", "unlogged"]
)
async def test_it_does_not_look_up_because_of(who: str, tmp_path: Path) -> None:
    changed: dict[str, dict[str, Any]] = {
        "bot": {"bots": ["*!alice@*", "*!~alice@*"]},
        "ignored": {"ignore": ["alice!*@*"]},
        "unlogged": {"channel": {ROOM: {"proactive": "on", "logging": False}}},
    }
    async with world(tmp_path, "off" if who == "off" else "on", **changed.get(who, {})) as it:
        if who == "opted out":
            await it.alice.ask(".nolog", "NOTICE")
        text = f"{QUESTION} [nolog]" if who == "marked" else QUESTION
        await it.alice.say("Terra" if who == "private" else ROOM, text)
        await it.alice.settle()
        await it.says(it.bob, "ok")
        assert not it.tendril.events.unasked.attention.is_waiting(Place("irc", ROOM))
        assert it.said() == []


async def test_once_kicked_it_is_silent_until_an_admin_wants_it_again(tmp_path: Path) -> None:
    async with world(tmp_path, "on", admins=["bob!*@*"], rejoin_after=0) as it:
        attention, place = it.tendril.events.unasked.attention, Place("irc", ROOM)
        await it.alice.send(f"KICK {ROOM} Terra :enough")
        await it.bob.expect("KICK .* Terra ")
        await it.bob.expect(":Terra!.* JOIN ")
        await it.tendril.networks["irc"].all_joined.wait()
        await it.says(it.alice, QUESTION)
        assert not attention.is_waiting(place)
        await it.bob.ask(f".set {ROOM} proactive on", "proactive is on")
        await it.says(it.alice, "nobody knows? how do I mount a cd?")
        assert attention.is_waiting(place)


async def test_unasked_nothing_is_done_for_anybody(tmp_path: Path) -> None:
    async with world(tmp_path, "on") as it:
        it.script.call("remember", {"key": "cat", "value": "Miez"}).say('{"response": ""}')
        await it.says(it.bob, "my cat is called Miez, does anybody know that?")
        await it.waits()
        await it.passes(5 * MINUTE)
        await it.script.arrived(2)
        assert "no such tool" in str(it.script.requests[1]["messages"][-1]["content"])
        assert await it.tendril.memory.memories.facts(f"irc/{ROOM}") == []
