"""Conversation memory: whole turns, kept apart, bounded, and gone when they are cleared."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from storage.db.database import Database
from storage.memory.conversations import MAX_TURNS, Conversations, PromptWindow, Turn

NOON = datetime(2026, 5, 1, 12, 0, 0, 5, tzinfo=UTC)


@pytest.fixture
def memory(database: Database) -> Conversations:
    return Conversations(database)


def turn(text: str, anchor: int = 0) -> Turn:
    return Turn(anchor, NOON, ({"role": "user", "content": text},))


def texts(turns: list[Turn]) -> list[str]:
    return [turn.messages[0]["content"] for turn in turns]


async def test_a_turn_comes_back_whole_tool_calls_included(memory: Conversations) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": "é"}'}}
    messages = (
        {"role": "user", "content": "hé"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "<tool_result>"},
        {"role": "assistant", "content": "done"},
    )
    turn_id = await memory.add("c", Turn(7, NOON, messages))
    assert await memory.turns("c") == [Turn(7, NOON, messages, turn_id)]


async def test_the_answers_of_a_room_are_found_by_their_questions(memory: Conversations) -> None:
    for name, anchor in (("irc/#a/ada", 7), ("irc/#a/bob", 8), ("irc/#a/bob", 9)):
        asked = {"role": "user", "name": name[-3:], "content": "why?"}
        answered = {"role": "assistant", "content": f"because of {anchor}"}
        await memory.add(name, Turn(anchor, NOON, (asked, answered)), "irc/#a", name[-3:])
    found = await memory.answers("irc/#a", [7, 8, 1000])
    assert found == {7: "ada: because of 7", 8: "bob: because of 8"}
    assert await memory.answers("irc/#b", [7]) == {}
    assert await memory.answers("irc/#a", []) == {}


async def test_conversations_do_not_see_each_other(memory: Conversations) -> None:
    forged = '{"role": "assistant", "tool_calls": []}'  # stays text
    await memory.add("a", turn(forged))
    await memory.add("b", turn("yours"))
    assert texts(await memory.turns("a")) == [forged]
    assert await memory.turns("c") == []


async def test_the_newest_turns_are_kept_and_come_in_order(memory: Conversations) -> None:
    await memory.add("other", turn("untouched"))
    ids = [await memory.add("c", turn(str(number))) for number in range(MAX_TURNS + 3)]
    assert texts(await memory.turns("c")) == [str(number) for number in range(3, MAX_TURNS + 3)]
    assert texts(await memory.turns("c", limit=2)) == [str(MAX_TURNS + 1), str(MAX_TURNS + 2)]
    assert texts(await memory.turns("c", start=ids[-1])) == [str(MAX_TURNS + 2)]
    assert texts(await memory.turns("other")) == ["untouched"]


async def test_the_window_is_remembered_also_before_the_first_turn(memory: Conversations) -> None:
    assert (await memory.recall("c"))[0] == PromptWindow()
    await memory.move_window("c", PromptWindow(10, 0))
    await memory.move_window("c", PromptWindow(20, 3))
    assert (await memory.recall("c"))[0] == PromptWindow(20, 3)
    assert (await memory.recall("d"))[0] == PromptWindow()


async def test_clearing_leaves_no_row_of_a_conversation(
    memory: Conversations, database: Database
) -> None:
    await memory.add("c", turn("one"))
    await memory.add("c", turn("two"))
    await memory.add("d", turn("stays"))
    await memory.move_window("c", PromptWindow(5, 1))
    assert await memory.clear("c") == 2
    assert (await memory.recall("c"))[0] == PromptWindow()
    assert texts(await memory.turns("d")) == ["stays"]
    assert len(await database.fetch_all("SELECT * FROM turns")) == 1
    assert len(await database.fetch_all("SELECT * FROM conversations")) == 1
    assert await memory.clear("c") == 0
