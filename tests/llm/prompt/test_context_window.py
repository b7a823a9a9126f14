"""The prompt fits the model's window: the past leaves in order, whole, and rarely."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm.client.client import TokenCountResult
from llm.messages.errors import ContextTooLong
from llm.messages.message import Message
from storage.chat_log.event import EventType
from storage.db.database import Database
from storage.log import ChatLog
from storage.memory.conversations import Conversations
from tests.kit.room import Room, calls, spoken


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database.open(tmp_path / "irc.db") as database:
        yield database


@pytest.fixture
async def room(database: Database) -> AsyncIterator[Room]:
    async with ChatLog.open(database) as log:
        yield Room(log, Conversations(database))


def assert_whole(prompt: list[Message]) -> None:
    """Each result follows the call it belongs to, and each call has its result."""
    open_calls: list[str] = []
    for message in prompt:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    assert not open_calls


async def test_old_turns_leave_whole_and_the_newest_always_stays(room: Room) -> None:
    for number in range(15):
        prompt = await room.asks(f"question {number}")
    assert len([m for m in prompt if m["role"] == "assistant"]) == 14
    await room.asks("research", *calls(*["search"] * 20))
    prompt = await room.asks("and?")
    assert_whole(prompt)
    assert [m["role"] for m in prompt].count("tool") == 20
    assert prompt[1]["content"].endswith("asks: research")


async def test_a_prompt_that_is_too_long_is_cut_to_half_and_stays_cut(room: Room) -> None:
    room.window = 1_100
    sizes, kept = [], 0
    prompt: list[Message] = []
    for number in range(40):
        await room.says(f"line {number} " + "x" * 250)
        following = await room.asks(f"question {number}")
        sizes.append((await room.count(following)).tokens)
        kept += following[: len(prompt)] == prompt
        prompt = following
    assert max(sizes) <= 1_000
    cut = [after for before, after in itertools.pairwise(sizes) if after < before]
    assert 4 <= len(cut) <= 10
    assert all(300 <= size <= 500 for size in cut)
    assert kept == len(sizes) - len(cut)
    assert prompt[-3]["content"].endswith("bob asks: question 38")


async def test_an_answer_whose_turn_was_left_out_is_a_line_from_then_on(room: Room) -> None:
    await room.asks("one " + "x" * 800, answer="first answer", meanwhile="in between")
    await room.asks("two", answer="second answer")
    room.window = 300
    prompt = await room.asks("three")
    assert spoken(prompt[1])[:2] == ["in between", "bob: first answer"]
    assert (await room.asks("four"))[: len(prompt)] == prompt


async def test_a_few_lines_do_not_take_all_turns_with_them(room: Room) -> None:
    for number in range(10):
        await room.asks(f"question {number} " + "x" * 400)
    await room.says("a short line")
    room.window = 1_100
    prompt = await room.asks("and?")
    assert [m["role"] for m in prompt].count("assistant") >= 3
    assert spoken(prompt[-1]) == ["a short line"]


async def test_results_of_tools_are_left_out_last_and_the_oldest_first(room: Room) -> None:
    await room.says("line " + "x" * 100)
    steps = calls("one", "two", "three")
    for step in steps[1::2]:
        step["content"] += " " + "y" * 1_000
    room.window = 900
    prompt = await room.asks("and?", *steps)
    assert "<irc_logs>" not in json.dumps(prompt)
    results = [message["content"] for message in prompt if message["role"] == "tool"]
    assert results[0] == "[left out: too long]"
    assert [result[:9] for result in results[1:]] == ["result of", "result of"]
    assert_whole(prompt)
    [turn] = await room.memory.turns(room.name)
    assert "y" * 1_000 in turn.messages[2]["content"]


async def test_a_question_that_cannot_fit_is_refused_and_not_kept(room: Room) -> None:
    await room.asks("hello")
    room.window = 500
    with pytest.raises(ContextTooLong):
        await room.asks("word " * 1_000)
    assert len(await room.memory.turns(room.name)) == 1
    room.window = 100_000
    assert len(await room.asks("and?")) == 4


NUMBERED = re.compile(r"(?:line|question|answer|own) \d+\b")
ACTIONS = st.lists(
    st.sampled_from(["line", "join", "own", "ask", "ask", "talk", "fail", "research", "long"]),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    actions=ACTIONS,
    last=st.integers(0, 5),
    window=st.sampled_from([700, 2_000, 100_000]),
)
async def test_whatever_happens_the_prompt_is_sound(
    actions: list[str], last: int, window: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("room")
    async with Database.open(folder / "irc.db") as database, ChatLog.open(database) as log:
        room = Room(log, Conversations(database), last=last, window=window)
        prompt: list[Message] = []
        for number, action in enumerate([*actions, "ask"]):
            if action == "line":
                await room.says(f"line {number}")
            elif action == "join":
                await room.says("", f"guest{number}", type=EventType.JOIN)
            elif action == "own":
                await room.says(f"own {number}", "Terra", own=True)
            elif action == "fail":
                await room.asks(f"question {number}.", answer=None)
            else:
                prompt = await asks_soundly(room, number, action, prompt)


async def asks_soundly(room: Room, number: int, kind: str, before: list[Message]) -> list[Message]:
    """Ask, and check the prompt: it begins with the one `before` unless its start has moved."""
    start = await room.memory.window(room.name)
    question = f"question {number}." + " x" * (300 if kind == "long" else 0)
    steps = calls("search", "who") if kind == "research" else []
    meanwhile = f"line {number}" if kind == "talk" else ""
    prompt = await room.asks(question, *steps, answer=f"answer {number}.", meanwhile=meanwhile)
    assert_sound(prompt, await room.count(prompt), question)
    if await room.memory.window(room.name) == start:
        assert prompt[: len(before)] == before
    return prompt


def assert_sound(prompt: list[Message], counted: TokenCountResult, question: str) -> None:
    """Within the window, whole, in order, and nothing twice."""
    assert counted.tokens <= counted.window - 100
    assert_whole(prompt)
    text = json.dumps(prompt)
    assert text.count(question) == 1
    said = NUMBERED.findall(text)
    assert len(said) == len(set(said))
    further_back = re.compile(r"<earlier_irc_logs>.*?</earlier_irc_logs>")
    numbers = [int(name.split()[1]) for name in NUMBERED.findall(further_back.sub("", text))]
    assert numbers == sorted(numbers)
