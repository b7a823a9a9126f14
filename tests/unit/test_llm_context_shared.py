"""A channel on which several people ask: their prompts have as much in common as they can."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm.message import Message
from storage.chat_log import ChatLog
from storage.conversations import Conversations
from storage.database import Database
from storage.event import EventType
from storage.privacy import OptOuts
from tests.kit.room import Room, calls, spoken


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with (
        Database.opened(tmp_path / "irc.db") as database,
        ChatLog.opened(database) as log,
    ):
        yield Room(log, Conversations(database), last=5, shared=True)


def flat(prompt: list[Message]) -> str:
    """A prompt as the model reads it."""
    return "".join(f"<{message['role']}>\n{message['content']}\n" for message in prompt)


async def chat(room: Room, lines: int) -> None:
    for _ in range(lines):
        await room.says(f"line {room.lines}")


async def test_all_who_ask_are_shown_the_same_lines_and_the_later_ones_more(room: Room) -> None:
    room.last = 8
    await chat(room, 12)
    prompts = []
    for nick in ("bob", "kim", "eve"):
        prompts.append(flat(await room.asks(f"I am {nick}", nick=nick)))
        await chat(room, 2)
    for first, second in itertools.pairwise(prompts):
        lines = first.partition("\n</irc_logs>")[0]
        assert lines.count("line") >= 8
        assert second.startswith(lines)


async def test_the_lines_begin_anew_for_all_at_once(room: Room) -> None:
    await chat(room, 5)
    await room.asks("one", nick="bob")
    await chat(room, 20)
    [_, first] = await room.asks("two", nick="kim")
    assert spoken(first) == [f"line {number}" for number in range(22, 27)]
    [_, second] = await room.asks("three", nick="eve")
    assert spoken(second)[:5] == spoken(first)


async def test_ones_own_turns_are_turns_while_nobody_else_is_answered(room: Room) -> None:
    await chat(room, 3)
    first = await room.asks("one")
    await chat(room, 2)
    await room.asks("lost", nick="kim", answer=None)
    second = await room.asks("two")
    assert second[: len(first)] == first
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]


async def test_ones_own_turns_are_lines_after_somebody_else_was_answered(room: Room) -> None:
    await chat(room, 3)
    await room.asks("one", answer="first answer")
    other = flat(await room.asks("two", nick="kim"))
    prompt = await room.asks("three")
    assert [message["role"] for message in prompt] == ["system", "user"]
    assert flat(prompt).startswith(other.partition("\n</irc_logs>")[0])
    assert flat(prompt).count(".terrarium one") == flat(prompt).count("first answer") == 1
    again = flat(await room.asks("four"))
    assert again.startswith(flat(prompt).partition("\n</irc_logs>")[0])
    assert again.count(".terrarium three") == 1


async def test_a_long_answer_of_which_the_log_may_have_the_beginning_only_stays_a_turn(
    room: Room,
) -> None:
    whole = "long " * 100
    await room.asks("one", answer=whole)
    await room.asks("two", nick="kim")
    prompt = await room.asks("three")
    assert [message["content"] for message in prompt if message["role"] == "assistant"] == [whole]
    assert ".terrarium one" not in flat(prompt)


async def test_turns_that_used_tools_stay_turns(room: Room) -> None:
    await room.asks("one", *calls("search"))
    await room.asks("two", nick="kim")
    prompt = await room.asks("three")
    assert [message["role"] for message in prompt[1:]] == [
        *("user", "assistant", "tool", "assistant", "user")
    ]
    assert ".terrarium one" not in flat(prompt)


async def test_turns_from_before_the_lines_follow_what_everybody_is_shown(room: Room) -> None:
    await room.asks("long ago", answer="an old answer")
    await chat(room, 20)
    other = flat(await room.asks("two", nick="kim"))
    prompt = await room.asks("three")
    assert flat(prompt).startswith(other.partition("\n</irc_logs>")[0])
    assert flat(prompt).count("long ago") == flat(prompt).count("an old answer") == 1
    assert [message["role"] for message in prompt] == ["system", "user", "assistant", "user"]
    again = flat(await room.asks("four"))
    assert again.startswith(flat(prompt).partition("\n</irc_logs>")[0])


async def test_turns_that_are_lines_now_are_turns_again_when_the_lines_are_gone(
    room: Room,
) -> None:
    await room.asks("one", answer="first answer")
    await room.asks("two", nick="kim")
    await room.asks("three")
    await chat(room, 30)
    prompt = await room.asks("four")
    assert [message["content"] for message in prompt if message["role"] == "assistant"] == [
        *("first answer", "So.")
    ]


async def test_the_next_beginning_is_read_ahead_when_the_lines_are_nearly_too_many(
    room: Room,
) -> None:
    await chat(room, 5)
    await room.asks("one", nick="kim")
    assert not room.ahead
    for number in range(2):
        await room.says(f"{number} " + "x" * 2_400)
    await room.asks("two")
    system, asked = room.ahead
    shown = [line.split()[0] for line in spoken(asked)]
    assert shown == ["line", "line", ".terrarium", "kim:", "0", "1"]
    prompt = flat(await room.asks("three", nick="eve"))
    assert prompt.startswith(flat([system, asked]).partition("\n</irc_logs>")[0])


async def test_lines_that_do_not_fit_begin_anew_for_all(room: Room) -> None:
    room.last = 2
    await room.says("line 0 " + "x" * 400)
    await room.asks("one", nick="kim")
    for number in range(1, 4):
        await room.says(f"line {number} " + "x" * 400)
    room.window = 500
    [_, first] = await room.asks("two")
    assert [line[:6] for line in spoken(first)] == ["line 2", "line 3"]
    room.window = 100_000
    [_, second] = await room.asks("three", nick="eve")
    assert spoken(second)[:2] == spoken(first)


async def test_what_one_asker_has_no_place_for_others_still_see(room: Room) -> None:
    await chat(room, 8)
    await room.asks("one", nick="kim")
    room.window = 420
    await room.asks("two", *calls(*["search"] * 3))
    room.window = 100_000
    [_, asked] = await room.asks("three", nick="eve")
    assert spoken(asked)[0] == "line 3"


NICKS = st.sampled_from(["bob", "kim", "eve"])
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["line", "join", "ask", "ask", "ask", "fail", "tool", "long", "hidden"]),
        NICKS,
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(actions=ACTIONS, last=st.integers(0, 4), window=st.sampled_from([900, 100_000]))
async def test_whoever_asks_the_prompt_is_sound(
    actions: list[tuple[str, str]],
    last: int,
    window: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("room")
    async with Database.opened(folder / "irc.db") as database, ChatLog.opened(database) as log:
        memory = Conversations(database)
        await OptOuts(database).add("irc", "mallory", None)
        room = Room(log, memory, last=last, window=window, shared=True)
        other = Room(log, memory, "#other", shared=True, lines=10_000)
        before: list[Message] = []
        previous = ""
        askers = set()
        for number, (action, nick) in enumerate([*actions, ("ask", "bob")]):
            if action == "line":
                await room.says(f"line {number}.", nick)
                await other.says("elsewhere", nick)
            elif action == "join":
                await room.says("", nick, type=EventType.JOIN)
            elif action == "hidden":
                await room.says("hidden", "mallory")
            else:
                moved = await starts(room)
                prompt = await asks(room, number, action, nick)
                assert_sound(prompt, number)
                assert (await room.count(prompt)).tokens <= window - 100
                askers.add(nick)
                if await starts(room) == moved:
                    assert_grown(before, prompt, same=previous == nick, alone=len(askers) == 1)
                before, previous = (prompt, nick) if action != "fail" else ([], "")
                await other.asks("elsewhere", nick=nick, answer="elsewhere")


async def starts(room: Room) -> list[object]:
    """Where the room's lines and everybody's turns begin."""
    names = [room.name, *map(room.conversation, ("bob", "kim", "eve"))]
    return [await room.memory.window(name) for name in names]


async def asks(room: Room, number: int, kind: str, nick: str) -> list[Message]:
    text = f"question {number}." + " x" * (300 if kind == "long" else 0)
    steps = calls("search", "who") if kind == "tool" else []
    answer = None if kind == "fail" else f"answer {number}."
    return await room.asks(text, *steps, nick=nick, answer=answer)


def assert_sound(prompt: list[Message], number: int) -> None:
    """Nothing twice, no call without its result, and nobody's words from elsewhere."""
    text = json.dumps(prompt)
    assert text.count(f"question {number}.") == 1
    assert "elsewhere" not in text
    assert "hidden" not in text
    said = re.findall(r"(?:line|question|answer) \d+\.", text)
    assert len(said) == len(set(said))
    called = [call["id"] for message in prompt for call in message.get("tool_calls") or ()]
    assert called == [message["tool_call_id"] for message in prompt if message["role"] == "tool"]
    lines = "".join(re.findall(r"<irc_logs>.*?</irc_logs>", text))
    numbers = [int(each) for each in re.findall(r"(?:line|question|answer) (\d+)\.", lines)]
    assert numbers == sorted(numbers)


def assert_grown(before: list[Message], prompt: list[Message], *, same: bool, alone: bool) -> None:
    """The prompt goes on from the one `before`: from all of it when the same person asked who is
    alone with the bot, else from what was said up to the first turn in either."""
    if alone and same:
        assert prompt[: len(before)] == before
    elif before and not (same and prompt[: len(before)] == before):
        first, second = (flat(each[:2]).partition("\n</irc_logs>")[0] for each in (before, prompt))
        if "<irc_logs>" in first and "<irc_logs>" in second:
            assert first.startswith(second) or second.startswith(first)
