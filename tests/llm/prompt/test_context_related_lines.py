"""Lines from further back that belong to a question, beside the newest ones."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from llm.messages.message import Message
from llm.threads.channel_threads import ChannelThreads
from storage.chat_log.event import EVERYTHING, EventType, Place
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations
from tests.kit.room import LINE, Room

EARLIER = re.compile(r"<earlier_irc_logs>\n(.*)\n</earlier_irc_logs>\n\n", re.DOTALL)
KERNEL = (
    ("bob", "my wifi card dies with the new kernel"),
    ("kim", "bob: boot the old kernel and look at dmesg for iwlwifi"),
)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with (
        Database.open(tmp_path / "irc.db") as database,
        ChatLog.open(database) as log,
    ):
        room = Room(log, Conversations(database), last=5)
        room.threads = ChannelThreads(log, Place("irc", room.name))
        yield room


async def cooking(room: Room, lines: int, begin: int = 0) -> None:
    """Two other people talk about something else."""
    for number in range(begin, begin + lines):
        await room.says(f"eve: soup recipe number {number}", "ada")


def earlier(message: Message) -> list[str]:
    """The lines from further back that a message carries."""
    found = EARLIER.search(message["content"])
    return LINE.findall(found[1]) if found else []


def questions(prompt: Sequence[Message]) -> list[Message]:
    return [message for message in prompt if message["role"] == "user"]


async def test_the_askers_own_conversation_is_found_further_back(room: Room) -> None:
    for nick, text in KERNEL:
        await room.says(text, nick)
    await cooking(room, 30)
    [asked] = questions(await room.asks("what was I to look for in dmesg, with the old kernel?"))
    assert earlier(asked)[:2] == [text for _, text in KERNEL]
    assert len(earlier(asked)) <= room.last
    assert asked["content"].index("</irc_logs>") < asked["content"].index("<earlier_irc_logs>")


async def test_no_line_is_shown_twice_and_the_prompt_grows_by_its_end_only(room: Room) -> None:
    for nick, text in KERNEL:
        await room.says(text, nick)
    await cooking(room, 30)
    first = await room.asks("what was I to look for in dmesg, with the old kernel?")
    await cooking(room, 3, 30)
    second = await room.asks("and the kernel, was it the old one?")
    assert second[: len(first)] == first
    texts = [text for message in questions(second) for text in LINE.findall(message["content"])]
    assert len(texts) == len(set(texts))


async def test_a_removed_line_is_gone_from_later_prompts_too(room: Room) -> None:
    for nick, text in KERNEL:
        await room.says(text, nick)
    await cooking(room, 30)
    await room.asks("what was I to look for in dmesg, with the old kernel?")
    [line] = await room.log.find(Query(scope=EVERYTHING, nick="kim"))
    await room.log.remove([line.id])
    for message in await room.asks("and the wifi card, with the old kernel?"):
        assert "iwlwifi" not in str(message["content"])


@pytest.mark.slow
async def test_a_long_pause_is_not_followed_line_by_line(room: Room) -> None:
    await cooking(room, 5)
    await room.asks("anything?")
    await cooking(room, 700, 5)
    for nick, text in KERNEL:
        await room.says(text, nick)
    await cooking(room, 10, 800)
    asked = questions(await room.asks("what was I to look for in dmesg, the old kernel?"))[-1]
    assert {text for _, text in KERNEL} <= set(earlier(asked))


async def test_somebody_with_a_new_nick_finds_their_conversation(room: Room) -> None:
    await room.says("my wifi card dies with the new kernel", "bobby")
    await room.says("", "bobby", type=EventType.NICK, target="bob")
    await cooking(room, 30)
    [asked] = questions(await room.asks("does it work with another one?"))
    assert "my wifi card dies with the new kernel" in earlier(asked)


async def test_what_does_not_fit_the_window_is_left_out_furthest_back_first(room: Room) -> None:
    for nick, text in KERNEL:
        await room.says(text, nick)
    await cooking(room, 30)
    question = "what was I to look for in dmesg, with the old kernel?"
    [whole] = questions(await room.asks(question, answer=None))
    room.window = (await room.count([whole])).tokens  # of which 100 are kept for the answer
    [asked] = questions(await room.asks(question))
    assert earlier(whole)
    assert earlier(asked) == []
    assert asked["content"].endswith(question)
