"""Sections in the prompt: where they stand, and when they are left out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llm.messages.errors import ContextTooLong
from llm.messages.message import Message, PromptSection
from llm.prompt.log_window import LogWindow
from storage.db.database import Database
from storage.log import ChatLog
from storage.memory.conversations import Conversations
from tests.kit.room import Room, calls

FACTS = PromptSection("facts", "ada: likes tea", 100)
SUMMARY = PromptSection("summary", "They spoke of soup.", 100)
SKILLS = PromptSection("skills", "How to boil an egg.", 100)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with (
        Database.open(tmp_path / "irc.db") as database,
        ChatLog.open(database) as log,
    ):
        yield Room(
            log, Conversations(database), stable=(FACTS, SUMMARY), question_sections=(SKILLS,)
        )


async def test_stable_sections_follow_the_persona(room: Room) -> None:
    system, _ = await room.asks("what now?")
    assert system["content"] == (
        "You are Terra.\n\n"
        "<facts>\nada: likes tea\n</facts>\n\n"
        "<summary>\nThey spoke of soup.\n</summary>"
    )


async def test_what_is_beside_the_question_follows_the_lines(room: Room) -> None:
    await room.says("hello")
    [_, asked] = await room.asks("what now?")
    assert asked["content"].endswith(
        "hello\n</irc_logs>\n\n<skills>\nHow to boil an egg.\n</skills>\n\nbob asks: what now?"
    )


async def test_what_is_beside_one_question_is_not_beside_the_next(room: Room) -> None:
    await room.asks("first")
    room.question_sections = ()
    assert "<skills>" not in json.dumps(await room.asks("second"))


def shown(prompt: list[Message]) -> list[str]:
    text = json.dumps(prompt)
    parts = {
        "line": "x" * 99,
        "skills": "egg",
        "result": "y" * 99,
        "summary": "soup",
        "facts": "tea",
    }
    return [name for name, part in parts.items() if part in text]


async def test_what_does_not_fit_leaves_in_order_and_the_persona_never(room: Room) -> None:
    """Lines, what is beside the question, results, then the stable sections from the last on."""
    await room.says("line " + "x" * 400)
    log_window = room.view(await room.says("and?", "bob"))
    seen: list[list[str]] = []
    room.window = 640
    while prompt := await fitted(room, log_window):
        assert prompt[0]["content"].startswith("You are Terra.")
        if not seen or shown(prompt) != seen[-1]:
            seen.append(shown(prompt))
        room.window -= 10
    whole = ["line", "skills", "result", "summary", "facts"]
    assert seen == [whole[number:] for number in range(6)]


async def fitted(room: Room, log_window: LogWindow) -> list[Message]:
    """The prompt of a run that has used a tool; nothing when it does not fit."""
    steps = calls("search")
    steps[1]["content"] = "y" * 300
    try:
        return await room.sent("and?", log_window, steps, None)
    except ContextTooLong:
        return []


async def test_long_sections_are_cut_to_their_share_of_the_window_and_keep_the_lines(
    room: Room,
) -> None:
    room.window = 800  # of which 100 are kept for the answer
    room.stable = (PromptSection("summary", "They spoke of soup.\n" * 500, 10_000),)
    room.question_sections = (PromptSection("skills", "Boil it.\n" * 500, 10_000),)
    await room.says("hello")
    system, asked = await room.asks("what now?")
    assert 600 <= len(system["content"]) <= 860
    assert 300 <= len(asked["content"]) <= 520
    assert system["content"].endswith("soup.\n...[truncated]\n</summary>")
    assert "hello" in asked["content"]
    again, *_ = await room.asks("and now?")
    assert again == system
