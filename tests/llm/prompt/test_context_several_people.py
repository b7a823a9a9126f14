"""A channel on which several people ask: each has a conversation of their own."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm.messages.message import Message
from storage.chat_log.event import EventType, Identity
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.log import ChatLog
from storage.memory.conversations import Conversations, PromptWindow
from tests.kit.room import Room, calls, spoken


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with (
        Database.open(tmp_path / "irc.db") as database,
        ChatLog.open(database) as log,
    ):
        yield Room(log, Conversations(database), last=5, shared=True)


def flat(prompt: list[Message]) -> str:
    """A prompt as the model reads it."""
    return "".join(f"<{message['role']}>\n{message['content']}\n" for message in prompt)


async def chat(room: Room, lines: int) -> None:
    for _ in range(lines):
        await room.says(f"line {room.lines}")


async def test_ones_own_turns_stay_turns_whoever_else_is_answered(room: Room) -> None:
    await chat(room, 3)
    first = await room.asks("one")
    await chat(room, 2)
    await room.asks("other", nick="kim", answer="for kim")
    second = await room.asks("two")
    assert second[: len(first)] == first
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert spoken(second[-1])[-2:] == [".terrarium other", "kim: for kim"]


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


NICKS = st.sampled_from(["bob", "kim", "eve"])
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["line", "join", "ask", "ask", "ask", "fail", "tool", "long", "hidden"]),
        NICKS,
    ),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(actions=ACTIONS, last=st.integers(0, 4), window=st.sampled_from([900, 100_000]))
async def test_whoever_asks_the_prompt_is_sound(
    actions: list[tuple[str, str]],
    last: int,
    window: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("room")
    async with Database.open(folder / "irc.db") as database, ChatLog.open(database) as log:
        memory = Conversations(database)
        await OptOuts(database).add("irc", Identity("mallory"))
        room = Room(log, memory, last=last, window=window, shared=True)
        other = Room(log, memory, "#other", shared=True, lines=10_000)
        last_of: dict[str, tuple[list[Message], PromptWindow]] = {}
        for number, (action, nick) in enumerate([*actions, ("ask", "bob")]):
            if action == "line":
                await room.says(f"line {number}.", nick)
                await other.says("elsewhere", nick)
            elif action == "join":
                await room.says("", nick, type=EventType.JOIN)
            elif action == "hidden":
                await room.says("hidden", "mallory")
            else:
                prompt = await asks(room, number, action, nick)
                assert_sound(prompt, number)
                assert (await room.count(prompt)).tokens <= window - 100
                start = await memory.window(room.conversation(nick))
                before, began = last_of.get(nick, ([], start))
                if began == start and action != "fail":
                    assert prompt[: len(before)] == before
                if action != "fail":
                    last_of[nick] = (prompt, start)
                await other.asks("elsewhere", nick=nick, answer="elsewhere")


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
