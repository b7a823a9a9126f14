"""A channel's prompts, from the log to the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harnesses.core.answer import Answer, Deliver
from storage.chat_log import ChatLog
from storage.database import Database
from tests.integration.test_harness_turn import small
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.room import Room
from tests.kit.small_tendril import SmallTendril


@asynccontextmanager
async def channels(
    folder: Path, *names: str, cache_reuse: bool = True
) -> AsyncIterator[tuple[list[Room], ScriptedOpenAI, SmallTendril]]:
    """Channels on which somebody was answered and so much was said since that their next prompt
    had better begin anew."""
    async with (
        Database.opened(folder / "log.db") as database,
        ChatLog.opened(database) as log,
        ScriptedOpenAI() as script,
        small(folder, script.url) as tendril,
    ):
        script.cache_reuse = cache_reuse
        rooms = [
            Room(log, tendril.conversations, name, last=5, shared=True, lines=1_000 * number)
            for number, name in enumerate(names)
        ]
        for room in rooms:
            for _ in range(5):
                await room.says("before")
            await ask(room, tendril, "kim")
            for number in range(5):
                await room.says(f"{room.name} line {number} " + "word " * 200)
        yield rooms, script, tendril


async def ask(room: Room, tendril: SmallTendril, nick: str, deliver: Deliver | None = None) -> None:
    """Somebody asks, and hears the answer."""
    anchor = await room.says(".terrarium hi", nick)
    answer = await tendril.turn(
        room.conversation(nick),
        who=nick,
        text="hi",
        room=room.name,
        view=room.view(anchor, nick),
        deliver=deliver,
    )
    assert answer.ok
    await room.says(f"{nick}: {answer.text}", "Terra", own=True, reply_to=anchor)


async def test_the_beginning_of_the_next_prompt_is_read_when_nobody_waits_for_it(
    tmp_path: Path,
) -> None:
    async with channels(tmp_path, "#pond") as ([room], script, tendril):
        await ask(room, tendril, "bob")
        await tendril.ahead.ended()
        await ask(room, tendril, "eve")
        _, second, recalled, ahead, third = script.requests
        assert recalled["messages"] == second["messages"]
        assert recalled["max_tokens"] == ahead["max_tokens"] == 1
        assert [each["x-priority"] for each in script.headers] == [
            *("interactive", "interactive", "background", "background", "interactive")
        ]
        assert third["messages"][0] == ahead["messages"][0]
        lines = ahead["messages"][1]["content"].removesuffix("\n</irc_logs>\n\n")
        assert lines.startswith("<irc_logs>\n")
        assert "line 3" in lines
        assert third["messages"][1]["content"].startswith(lines)


async def test_nothing_is_read_ahead_where_an_engine_would_read_it_anew(tmp_path: Path) -> None:
    async with channels(tmp_path, "#pond", cache_reuse=False) as ([room], script, tendril):
        await ask(room, tendril, "bob")
        await tendril.ahead.ended()
        assert len(script.requests) == 2


async def test_what_is_read_ahead_for_one_room_is_read_before_another_takes_its_place(
    tmp_path: Path,
) -> None:
    async with channels(tmp_path, "#pond", "#lake", "#sea") as (rooms, script, tendril):
        script.say("So.").think("So.")
        await ask(rooms[0], tendril, "bob")
        await script.arrived(5)
        for room in rooms[1:]:
            await ask(room, tendril, "bob")
        script.release()
        await tendril.ahead.ended()
        read = [
            next(room.name for room in rooms if room.name in str(request["messages"]))
            for request in script.requests
            if request["max_tokens"] == 1
        ]
        assert len(read) == 6
        assert read[::2] == read[1::2]


async def test_of_two_who_are_answered_at_once_only_the_last_has_something_read_ahead(
    tmp_path: Path,
) -> None:
    delivered = asyncio.Event()

    async def late(_: Answer) -> None:
        await delivered.wait()

    async with channels(tmp_path, "#pond") as ([room], script, tendril):
        script.say("So.").say("So.").hang()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask(room, tendril, "eve", late))
            await script.arrived(2)
            await ask(room, tendril, "bob")
            await script.arrived(4)
            delivered.set()
        await script.client_gone()
        await tendril.ahead.ended()
