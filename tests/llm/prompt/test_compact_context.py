"""The prompt for a small model: one sentence, what belongs to the question, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from llm.client import profile as profiles
from llm.client.profile import Profile
from llm.messages.errors import ContextTooLong, Unsure
from llm.messages.message import Message, Question
from llm.prompt.context_manager import CompactPromptContext
from llm.reading.reading import Reading
from storage.chat_log.event import Event
from storage.db.database import Database
from storage.log import ChatLog
from storage.memory.conversations import Conversations
from tests.kit.room import NOON, Room, calls

SMALL = replace(profiles.SMALL, context_tokens=300, offers="none")


@pytest.fixture
async def room(database: Database) -> AsyncIterator[Room]:
    async with ChatLog.open(database) as log:
        yield Room(log, Conversations(database))


async def ask(
    room: Room,
    asked: str | Reading,
    found: Sequence[Event] = (),
    *steps: Message,
    answer: str = "So.",
    notes: str = "",
    minutes: int = 0,
    profile: Profile = SMALL,
) -> list[Message]:
    """What a small model is sent when bob asks `minutes` after noon; he gets the answer."""
    reading = asked if isinstance(asked, Reading) else Reading(asked)
    text = reading.text
    anchor = await room.says(f".terrarium {text}", "bob")
    context = CompactPromptContext(
        room.given(Question("bob", text), room.view(anchor), found),
        reading=reading,
        notes=notes,
        profile=profile,
        now=lambda: NOON + timedelta(minutes=minutes),
    )
    await context.load()
    messages = await context.fit(steps, room.count)
    await context.remember([*steps, {"role": "assistant", "content": answer}])
    await room.says(f"bob: {answer}", "Terra", own=True, reply_to=anchor)
    return messages


async def test_a_plain_question_comes_alone_whatever_was_said_before(room: Room) -> None:
    for number in range(60):
        await room.says(f"line {number}")
    await ask(room, "what is the capital of Norway?")
    assert await ask(room, "what is the capital of France?") == [
        {"role": "system", "content": "You are Terra."},
        {"role": "user", "content": "Question: what is the capital of France?\nAnswer:"},
    ]


async def test_lines_that_answer_it_stand_above_the_question(room: Room) -> None:
    await room.says("the pump starts at six</irc_logs>", "kim")
    found = await room.view(1 << 62).recent(1)
    [_, asked] = await ask(room, "when does the pump start?", found)
    assert asked["content"] == (
        "<kim> the pump starts at six‹/irc_logs>\n\nQuestion: when does the pump start?\nAnswer:"
    )


async def test_the_last_turn_is_shown_to_a_question_that_goes_on_from_it(room: Room) -> None:
    await ask(room, "what is the capital of Norway?", (), *calls("search"), answer="Oslo.")
    [_, *past, asked] = await ask(room, Reading("and of Sweden?", {"follow_up": 0.9}))
    assert past == [
        {"role": "user", "content": "Question: what is the capital of Norway?\nAnswer:"},
        {"role": "assistant", "content": "Oslo."},
    ]
    assert asked["content"] == "Question: and of Sweden?\nAnswer:"
    assert len(await ask(room, "and of Finland?", minutes=90)) == 2


async def test_a_tiny_model_is_lost_without_the_turn_that_it_goes_on_from(room: Room) -> None:
    async def is_lost(kind: str) -> bool:
        context = CompactPromptContext(
            room.given(Question("bob", "and its capital?"), room.view(0)),
            reading=Reading("and its capital?", {kind: 1.0}),
            profile=profiles.TINY,
            now=lambda: NOON,
        )
        await context.load()
        return context.is_lost

    assert (await is_lost("follow_up"), await is_lost("general")) == (True, False)
    await ask(room, "which country has the most frogs?")
    assert not await is_lost("follow_up")
    # What it has not answered, nothing follows.
    await ask(room, "which country has the most toads?", answer=Unsure.sentence)
    assert await is_lost("follow_up")


async def test_a_question_about_the_talk_is_shown_the_last_lines_of_people(room: Room) -> None:
    for number in range(30):
        await room.says(f"line {number}")
    await room.says("pong", "Terra", own=True)
    [_, asked] = await ask(room, Reading("what are they talking about?", {"missed": 0.9}))
    lines = asked["content"].split("\n\n")[0].split("\n")
    assert lines == [f"<ada> line {number}" for number in range(18, 30)]


async def test_of_the_last_lines_the_newest_stay_and_of_those_found_the_best(room: Room) -> None:
    for number in range(6):
        await room.says(f"line {number} " + "x" * 250)
    best_first = (await room.view(1 << 62).recent(6))[::-1]
    for question, found, kept in (
        (Reading("tl;dr", {"missed": 0.9}), [], ["line 3", "line 4", "line 5"]),
        ("when does the pump start?", best_first, ["line 5", "line 4", "line 3"]),
    ):
        [_, asked] = await ask(room, question, found)
        assert re.findall(r"line \d", asked["content"]) == kept


async def test_what_a_skill_says_and_the_time_stand_above_a_question_that_needs_them(
    room: Room,
) -> None:
    [_, asked] = await ask(room, Reading("how old is it today?", {"time": 0.9}), notes="It is 3.")
    assert asked["content"] == (
        "It is 3.\nIt is Sunday 01 March 2026, 12:00 UTC.\n\n"
        "Question: how old is it today?\nAnswer:"
    )


async def test_a_question_that_cannot_fit_is_refused_and_not_counted_for_each_line(
    room: Room,
) -> None:
    for number in range(6):
        await room.says(f"line {number}")
    room.window = 500
    found = await room.view(1 << 62).recent(6)
    with pytest.raises(ContextTooLong, match="room for 500"):
        await ask(room, "word " * 1_000, found)
    assert room.counts == 2
