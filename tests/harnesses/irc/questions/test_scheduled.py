"""Questions that people schedule: asked in their name, with their rights, while they are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.log import ChatLog
from storage.queues.reminders import Reminders
from tests.kit.irc_client import irc_client, irc_member
from tests.kit.irc_scene import Scene
from tests.kit.irc_tendril import ROOM, irc_config, logged
from tests.kit.lines import said
from tests.kit.patience import PATIENCE
from tests.kit.readings import by_cues

MONDAY = datetime(2026, 5, 4, 9, tzinfo=UTC)
WEEK = timedelta(days=7)
WEEKLY = ".terrarium every monday at 9 sum up the week here"


class World(Scene):
    """The room, in which questions are scheduled."""

    async def is_over(self, then: datetime) -> None:
        """Let it be a time at which a question is due, and wait until its next time is planned."""
        await self.clock.set(then)
        await self.clock.asleep_until(then + WEEK)

    async def is_gone(self) -> None:
        """Wait until nothing is scheduled any more."""
        async with Database.open(self.data / "irc.db") as database, asyncio.timeout(PATIENCE):
            while await Reminders(database).all():  # noqa: ASYNC110 -- the tendril tells nobody
                await asyncio.sleep(0.05)


@asynccontextmanager
async def world(data: Path, **tables: Any) -> AsyncIterator[World]:
    async with World.open(data, **tables) as it:
        it.script.reads = by_cues(schedule="every monday")
        yield it


async def schedule(it: World) -> None:
    """Have alice schedule her question."""
    await it.alice.say(ROOM, WEEKLY)
    await it.alice.expect(
        r"alice: I will do that on Mon 2026-05-04 at 09:00 UTC, and again each time that you are"
        r" here .reminder 1"
    )


async def test_a_scheduled_question_is_asked_in_the_name_of_its_owner(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        await schedule(it)
        assert it.script.requests == []  # no model was needed
        await it.bob.say(ROOM, "the pump was mended")
        for time in (MONDAY, MONDAY + WEEK):
            it.script.say("The pump was mended.")
            await it.is_over(time)
            await it.alice.expect(rf"PRIVMSG {ROOM} :alice: The pump was mended\.$")
        asked = [request["messages"][-1]["content"] for request in it.script.requests]
        assert len(asked) == 2
        assert "sum up the week here" in asked[0]
        assert "alice" in asked[0]
        assert "scheduled this question" in it.script.requests[0]["messages"][0]["content"]
        names = {tool["function"]["name"] for tool in it.script.requests[0].get("tools", [])}
        assert "search_log" in names
        assert "kick" not in names
        assert it.script.headers[0]["x-priority"] == "background"
        assert "to do: sum up the week here" in await it.alice.told(".reminders")
        assert await it.bob.told(".reminders cancel 1") == "You have no reminder 1."
        assert await it.alice.told(".reminders cancel 1") == "Cancelled."
    lines = await logged(irc_config(tmp_path, it.port, it.script.url))
    assert ("PRIVMSG", "Terra", "alice: The pump was mended.") in lines, lines


async def test_it_is_shown_what_any_question_then_would_be_shown(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "irc.db") as database:
        await ChatLog(database).add([said("carol waters on monday", place=Place("irc", ROOM))])
    async with world(tmp_path) as it:
        await it.alice.ask(".schedule 2026-05-04 09:00 tell us who waters today", "reminder 1")
        it.script.say("Carol does.")
        await it.clock.set(MONDAY)  # three days later, and nobody has said anything since
        await it.alice.expect("alice: Carol does")
    assert "carol waters on monday" in it.script.requests[0]["messages"][-1]["content"]


async def test_while_its_owner_is_away_the_time_is_left_out(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        await schedule(it)
        await it.alice.send(f"PART {ROOM}")
        await it.bob.expect("PART")
        await it.is_over(MONDAY)
        assert it.script.requests == []
        await it.alice.join(ROOM)
        await it.bob.expect("JOIN")
        it.script.fail(400, "not now").say("All was quiet.")
        await it.clock.set(MONDAY + WEEK)  # the model is away, and is asked again for an hour
        await it.clock.asleep_until(MONDAY + WEEK + timedelta(minutes=1))
        await it.clock.set(MONDAY + WEEK + timedelta(minutes=1))
        await it.alice.expect("alice: All was quiet")


async def test_what_is_asked_once_waits_until_its_owner_is_back(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        await it.alice.say(ROOM, ".schedule 2026-05-04 09:00 tell us who waters today")
        await it.alice.expect(r"at 09:00 UTC, or once you are back .reminder 1")
        await it.alice.send(f"PART {ROOM}")
        await it.bob.expect("PART")
        for minutes in (0, 120):  # long after what is tried again while the model is away
            await it.clock.set(MONDAY + timedelta(minutes=minutes))
            await it.clock.asleep_until(MONDAY + timedelta(minutes=minutes + 1))
        await it.alice.join(ROOM)
        await it.bob.expect("JOIN")
        it.script.say("Carol does.")
        await it.clock.set(MONDAY + timedelta(minutes=121))
        await it.alice.expect("alice: Carol does")
        await it.is_gone()


async def test_what_an_admin_schedules_on_a_channel_is_the_channels(tmp_path: Path) -> None:
    async with world(tmp_path, irc={"admins": ["alice!*@*"]}) as it:
        await it.alice.ask(WEEKLY, r"and again each time .reminder 1")
        await it.alice.send("QUIT")
        await it.bob.expect("QUIT")
        it.script.say("The pump was mended.")
        await it.is_over(MONDAY)
        await it.bob.expect(rf"PRIVMSG {ROOM} :The pump was mended\.$")


async def test_whoever_has_their_nick_does_not_get_it_asked(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        await schedule(it)
        await it.alice.send("QUIT")
        await it.bob.expect("QUIT")
        async with irc_client(it.port, "mallory") as other:
            await other.send("NICK alice")
            await other.expect("NICK :?alice")
            await other.join(ROOM)
            await it.is_over(MONDAY)
            assert it.script.requests == []


async def test_it_ends_when_its_owner_opts_out_or_is_ignored(tmp_path: Path) -> None:
    for number, end in enumerate((".nolog", "ignore", "erasure")):
        async with world(tmp_path / str(number), irc={"admins": ["bob!*@*"]}) as it:
            await schedule(it)
            if end == "ignore":
                await it.bob.told(".ignore alice")
            elif end == "erasure":  # of the line by which it was asked
                async with Database.open(it.data / "irc.db") as database:
                    (kept,) = await Reminders(database).all()
                    line = [kept.question_event_id]
                    await database.execute("DELETE FROM events WHERE id = ?", line)
            else:
                await it.alice.told(end)
            await it.clock.set(MONDAY)
            await it.is_gone()
            assert it.script.requests == []


async def test_one_person_schedules_five_questions_at_most(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        for number in range(5):
            await it.alice.say(ROOM, f".schedule every day at {number + 9} list the questions")
            await it.alice.expect(f"reminder {number + 1}")
        refused = await it.alice.told(".schedule every day at 7 list the questions")
        assert refused == "You already have 5 scheduled questions; cancel one first."
        assert "every monday and thursday at 9" in await it.alice.told(".schedule soon x")


async def test_forget_me_ends_it_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        await schedule(it)
        word = (await it.alice.told(".forget me")).split()[-1]
        assert (await it.alice.told(f".forget me {word}")).startswith("Forgotten: ")
        async with Database.open(it.data / "irc.db") as database:
            assert await Reminders(database).all() == []
        await it.clock.set(MONDAY)
        await it.bob.ask(".ask tell me a story", "bob: ok")
        assert len(it.script.requests) == 1  # bob's


async def test_who_speaks_through_a_relay_schedules_nothing(tmp_path: Path) -> None:
    relays = {"relays": ["bridge!*@*"]}
    async with world(tmp_path, irc=relays) as it, irc_member(it.port, "bridge") as bridge:
        refusal = r"eve: People who speak through a relay cannot schedule questions"
        for words in (WEEKLY, ".schedule every monday at 9 sum up the week here"):
            await bridge.say(ROOM, f"<eve> {words}")
            await it.bob.expect(refusal)
        async with Database.open(it.data / "irc.db") as database:
            assert await Reminders(database).all() == []
