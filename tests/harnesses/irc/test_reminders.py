"""Reminders on a real channel: said in time and in place, once, to whom they belong."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from harnesses.irc.tendril import IrcTendril
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.reminders import Owner, Reminder, Reminders
from tests.kit.clock import ManualClock
from tests.kit.irc_client import IrcClient, irc_member
from tests.kit.irc_scene import NOBODY, NOON
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class World:
    """A room with alice and bob in it; the tendril in it has lives."""

    def __init__(self, data: Path, port: int, alice: IrcClient, bob: IrcClient) -> None:
        self.data, self.port, self.alice, self.bob = data, port, alice, bob

    @asynccontextmanager
    async def tendril(
        self, clock: ManualClock, api_url: str = NOBODY, **tables: Any
    ) -> AsyncIterator[IrcTendril]:
        config = irc_config(self.data, self.port, api_url, **tables)
        async with irc_tendril(config, clock) as tendril:
            yield tendril

    @asynccontextmanager
    async def life(
        self, now: datetime, api_url: str = NOBODY, **tables: Any
    ) -> AsyncIterator[ManualClock]:
        """A life of the tendril that begins at `now`."""
        clock = ManualClock(now)
        async with self.tendril(clock, api_url, **tables):
            yield clock


@asynccontextmanager
async def world(data: Path) -> AsyncIterator[World]:
    async with (
        embedded_ircd() as ircd,
        irc_member(ircd.port, "alice") as alice,
        irc_member(ircd.port, "bob") as bob,
    ):
        yield World(data, ircd.port, alice, bob)


@asynccontextmanager
async def scripted_life(data: Path) -> AsyncIterator[tuple[ScriptedOpenAI, World, ManualClock]]:
    """A life from noon on with a scripted model."""
    async with ScriptedOpenAI() as script, world(data) as it, it.life(NOON, script.url) as clock:
        yield script, it, clock


def said(client: IrcClient) -> list[str]:
    """The reminders that the client has seen."""
    found = [re.search(r"PRIVMSG \S+ :(.*reminder.*: .*)$", line) for line in client.lines]
    return [match[1] for match in found if match]


async def test_a_reminder_survives_a_restart_and_is_said_in_its_place(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        async with it.life(NOON, agent={"timezone": "Europe/Vienna"}):
            await it.alice.say(ROOM, ".remind me at 18:00 to call mum")
            answer = await it.alice.expect(rf"PRIVMSG {ROOM} :alice: (.*)$")
            assert answer[1].startswith(
                "I will remind you on Fri 2026-05-01 at 18:00 Europe/Vienna (reminder"
            )
        async with it.life(NOON + HOUR) as clock:
            await it.alice.settle()
            assert said(it.alice) == []
            await clock.set(NOON + 4 * HOUR)
            await it.bob.expect(rf"PRIVMSG {ROOM} :alice: reminder: call mum$")
            while "no reminders" not in await it.alice.told(".reminders"):
                pass  # that it was said is being noted
        async with it.life(NOON + 5 * HOUR):
            assert "no reminders" in await it.alice.told(".reminders")
        assert said(it.bob) == ["alice: reminder: call mum"]


async def test_what_was_missed_is_made_up_for_once(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        async with it.life(NOON):
            await it.alice.ask(".remind every hour drink", "again each time")
        async with it.life(NOON + 5 * HOUR + 30 * MINUTE) as clock:
            late = "due on Fri 2026-05-01 at 13:00 UTC while I was away"
            await it.alice.expect(rf"alice: reminder, {late}: drink$")
            await clock.asleep_until(NOON + 6 * HOUR)
            assert "at 18:00 UTC (repeated): drink" in await it.alice.told(".reminders")
            await clock.advance(30 * MINUTE)
            await it.alice.expect("alice: reminder: drink$")
        assert len(said(it.alice)) == 2


async def test_a_reminder_is_not_lost_because_the_model_is_busy(tmp_path: Path) -> None:
    async with scripted_life(tmp_path) as (script, it, clock):
        await it.alice.ask(".remind in 20 minutes it is time to go home", "I will remind you")
        script.hang("Well,")
        await it.alice.say(ROOM, ".terrarium what is tea?")
        await script.arrived(1)
        await clock.advance(20 * MINUTE)
        await it.alice.expect("alice: reminder: it is time to go home$")
        script.release()


async def test_only_its_owner_or_an_admin_cancels_a_reminder(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        async with it.life(NOON, irc={"admins": ["bob!*@*"]}):
            await it.alice.ask(".remind in 2h tea", "reminder 1")
            await it.bob.ask(".remind in 2h cake", "reminder 2")
            assert await it.alice.told(".reminders cancel 2") == "You have no reminder 2."
            assert (await it.bob.told(".reminders")).startswith("2: ")
            assert await it.bob.told(".reminders cancel 1") == "Cancelled."
        async with it.life(NOON + 2 * HOUR):
            await it.bob.expect("bob: reminder: cake$")
        assert said(it.bob) == ["bob: reminder: cake"]


async def test_jobs_are_paused_and_run_by_their_owner_and_admins_see_those_of_the_channel(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it, it.life(NOON, irc={"admins": ["bob!*@*"]}) as clock:
        assert await it.alice.told(".jobs") == "Nothing of yours is waiting."
        await it.alice.ask(".remind in 2h tea", "reminder 1")
        when = "Fri 2026-05-01 14:00 UTC: tea"
        assert await it.alice.told(".jobs") == f"1: {when}"
        assert await it.bob.told(".jobs pause 1") == "You have no job 1 to pause."
        assert await it.bob.told(".jobs pause irc/reminder-1") == "Paused: tea"
        assert await it.alice.told(".jobs") == f"1: {when} (paused)"
        await clock.advance(3 * HOUR)
        await it.alice.settle()
        assert said(it.alice) == []
        assert await it.alice.told(".jobs run 1") == "Within half a minute: tea"
        await clock.advance(MINUTE)
        await it.alice.expect("alice: reminder: tea$")
        async with Database.open(tmp_path / "irc.db") as database:
            for number in range(25):
                owner, place = Owner("irc", f"carol{number % 2}"), Place("irc", ROOM)
                soup = Reminder(owner, place, False, "soup", NOON + 9 * HOUR)
                await Reminders(database).add(soup)
        await it.bob.ask(".jobs", "and 5 more")


async def test_a_reminder_is_cancelled_by_any_form_of_one_of_its_words(tmp_path: Path) -> None:
    async with world(tmp_path) as it, it.life(NOON):
        assert "every monday and thursday at 9" in await it.alice.told(".remind soon tea")
        assert await it.alice.told(".remind in 5 minutes") == "What about?"
        assert "300" in await it.alice.told(f".remind in 5 minutes {'x' * 301}")
        assert "cancel NUMBER" in await it.alice.told(".reminders drop 1")
        assert "When, and what about?" in await it.alice.told(".remind me")
        assert "no reminders" in await it.alice.told(".reminders cancel all")
        assert "no reminder" in await it.alice.told(".reminders cancel 1")
        await it.alice.ask(".remind in 2h brownies in the oven", "reminder 1")
        await it.alice.ask(".remind in 2h call the plumber", "reminder 2")
        cancel = ".reminders cancel"
        assert "no such reminder" in await it.alice.told(f"{cancel} the soup")
        await it.alice.ask(cancel, "Which one[?].*")
        await it.alice.expect("2: .*: call the plumber")
        said_so = await it.alice.told(f"{cancel} brownie, they're out")
        assert said_so == "Cancelled: brownies in the oven"
        assert (await it.alice.told(".reminders")).startswith("2: ")
        assert await it.alice.told(cancel) == "Cancelled: call the plumber"
        assert await it.alice.told(cancel) == "You have no reminders."


async def test_a_reminder_in_private_stays_private_and_of_who_is_not_logged_is_not_logged(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as it:
        async with it.life(NOON) as clock:
            await it.alice.say("Terra", ".remind in 20 minutes my secret")
            await it.alice.expect("PRIVMSG alice :I will remind you")
            await clock.advance(20 * MINUTE)
            await it.alice.expect("PRIVMSG alice :reminder: my secret$")
            await it.bob.settle()
            await it.alice.told(".nolog")
            await it.alice.ask(".remind in 20 minutes xyzzy", "I will remind you")
            await clock.advance(20 * MINUTE)
            await it.alice.expect("alice: reminder: xyzzy$")
        assert "secret" not in "".join(it.bob.lines)
        kept = str(await logged(irc_config(tmp_path, it.port, NOBODY)))
        assert "secret" not in kept
        assert "xyzzy" not in kept


async def test_a_reminder_waits_until_we_are_where_it_belongs(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        async with it.life(NOON):
            await it.alice.ask(".remind in 20 minutes tea", "I will remind you")
        clock = ManualClock(NOON + 20 * MINUTE)
        async with it.tendril(clock, irc={"channels": ["#other"]}) as tendril:
            await clock.asleep_until(clock.now() + timedelta(seconds=15))  # it has been tried
            network = tendril.networks["irc"]
            network.join(ROOM)
            await network.all_joined.wait()
            await clock.advance(MINUTE)
            await it.alice.expect("alice: reminder: tea$")


async def test_the_model_keeps_reminders_in_the_name_of_who_asks(tmp_path: Path) -> None:
    async with scripted_life(tmp_path) as (script, it, clock):
        script.call("remind", {"when": "in 20 minutes", "text": "tea"}).say("I will.")
        await it.alice.say(ROOM, ".terrarium my tea is ready in 20 minutes and you might remind me")
        await it.alice.expect("alice: I will")
        script.call("remind", {"when": "when it rains", "text": "tea"}).say("I cannot.")
        await it.alice.ask(".terrarium remind me of it when it rains", "alice: I cannot")
        assert "I understand times like these" in str(script.requests[-1]["messages"][-1])
        await clock.advance(20 * MINUTE)
        await it.alice.expect("alice: reminder: tea$")
        for zone, told in (("Mars/Olympus", "UTC"), ("Europe/Vienna", "Europe/Vienna")):
            script.call("remember", {"key": "timezone", "value": zone}).say("I know it now.")
            await it.alice.ask(f".terrarium you may note my timezone: {zone}", "I know it now")
            await it.alice.ask(".remind at 18:00 tea", f"on Fri 2026-05-01 at 18:00 {told}")
        await it.bob.ask(".remind at 18:00 tea", "on Fri 2026-05-01 at 18:00 UTC")
