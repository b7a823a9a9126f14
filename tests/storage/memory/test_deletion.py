"""Forgetting reaches every layer of memory, and leaves not a byte; others' memories stay."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from storage.chat_log import deletion
from storage.chat_log.event import EVERYTHING, Event, Identity
from storage.chat_log.event_table import Query
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.log import ChatLog
from storage.memory.conversations import Conversations, Turn
from storage.memory.deletion import redact
from storage.memory.memories import HEARSAY, OWN, Gap, Memories, Memory, MemoryKind, RoomTurn
from storage.privacy.erasure import NamedPerson, Person, forget
from storage.privacy.retention import expire
from storage.queues.jobs import Jobs
from storage.settings import StorageSettings
from tests.kit.lines import NOON
from tests.kit.lines import said as line
from tests.kit.stores import Stores

ROOM = "irc/#frogs"
SECRET = "xyzzyplughplover"
ADA = Person("irc", SECRET, "~ada", "home.example", None)


def said(text: str, nick: str, minute: int) -> Event:
    user = f"~{nick}" if nick != SECRET else "~ada"
    return line(text, minute, channel="#frogs", nick=nick, user=user, host="home.example")


def fact(subject: str, source: str, key: str, turn: int, text: str = "a frog") -> Memory:
    return Memory(
        layer=MemoryKind.FACT,
        room=ROOM,
        text=text,
        time=NOON,
        subject=subject,
        key=key,
        source=source,
        confidence=OWN if subject == source else HEARSAY,
        conversation=f"{ROOM}/{source}",
        first_turn=turn,
        last_turn=turn,
    )


def made(layer: MemoryKind, turns: list[RoomTurn], text: str) -> Memory:
    first, last = turns[0].id, turns[-1].id
    return Memory(layer=layer, room=ROOM, text=text, time=NOON, first_turn=first, last_turn=last)


class Frogs:
    """A channel on which three people have asked in turn, with all that was made of it."""

    def __init__(self, database: Database, log: ChatLog) -> None:
        self.database, self.log = database, log
        self.conversations, self.memories = Conversations(database), Memories(database)

    async def filled(self) -> None:
        """Have nine turns, three episodes, a summary, facts, a note and a job."""
        for number, nick in enumerate((SECRET, "bob", "bob", "cid", "cid", "cid", "bob", SECRET)):
            await self.asks(number, nick)
        turns = await self.memories.turns(ROOM, 0, 1_000, 100)
        for some in (turns[:3], turns[3:6]):
            watermarks = await self.memories.progress(ROOM)
            episode = made(MemoryKind.EPISODE, some, f"{some[0].name} was there")
            await self.memories.add_episode(watermarks, some[-1].id, episode, some)
        watermarks = await self.memories.progress(ROOM)
        summary = made(MemoryKind.SUMMARY, turns[:6], f"Of {SECRET} and others.")
        await self.memories.advance_summary(watermarks, turns[5].id, summary, turns[:6])
        for each in (
            fact(SECRET, SECRET, "pet", turns[0].id),
            fact(SECRET, "bob", "debt", turns[1].id),
            fact("bob", SECRET, "city", turns[0].id),
            fact("bob", "bob", "pet", turns[1].id),
            replace(fact(SECRET, SECRET, "", 0), layer=MemoryKind.NOTE, text=f"noted by {SECRET}"),
        ):
            await self.memories.add(each)
        await self.memories.save_prompt_view(
            await self.memories.progress(ROOM), f"shown: {SECRET}", 6
        )
        private = f"irc/{SECRET}"
        await Jobs(self.database).add("memory.tell", {"room": private}, key=f"tell/{private}")
        await self.memories.progress(private)

    async def asks(self, number: int, nick: str) -> None:
        """Have somebody ask something."""
        (anchor,) = await self.log.add([said(f"{nick} asks {number}", nick, number)])
        message = {"role": "user", "content": f"{nick} asks {number}", "name": nick}
        turn = Turn(anchor, NOON + timedelta(minutes=number), (message,))
        await self.conversations.add(f"{ROOM}/{nick}", turn, ROOM, nick)

    async def gaps(self) -> list[Gap]:
        """The turns without an episode."""
        return list((await self.memories.backlog(ROOM, 1)).gaps)

    async def texts(self, layer: MemoryKind) -> list[str]:
        """The texts of a layer, in order."""
        return [memory.text for memory in await self.memories.latest(ROOM, layer)]


@pytest.fixture
async def place(log: ChatLog) -> Frogs:
    """The channel, with all of it."""
    frogs = Frogs(log.database, log)
    await frogs.filled()
    return frogs


async def test_not_a_byte_of_a_forgotten_person_is_left_in_any_layer(
    tmp_path: Path, stores: Stores, place: Frogs
) -> None:
    assert SECRET.encode() in stores.raw()
    await forget(place.log, ADA, tmp_path)
    assert len(await place.memories.turns(ROOM, 0, 1_000, 100)) == 6
    assert SECRET.encode() not in stores.raw()
    facts = await place.memories.facts(ROOM)
    assert [(each.subject, each.key) for each in facts] == [("bob", "pet")]
    assert await place.texts(MemoryKind.NOTE) == []
    assert await place.texts(MemoryKind.SUMMARY) == []
    assert await place.texts(MemoryKind.EPISODE) == ["cid was there"]
    assert await place.memories.search(ROOM, SECRET, 10) == []
    assert len(await place.memories.search(ROOM, "frog", 10)) == 1


async def test_what_is_lost_with_a_person_is_wanted_again_of_what_the_others_said(
    tmp_path: Path, place: Frogs
) -> None:
    await forget(place.log, ADA, tmp_path)
    watermarks = await place.memories.progress(ROOM)
    assert (watermarks.summary, watermarks.wanted, watermarks.episodes) == (0, 6, 6)
    assert await place.gaps() == [Gap(1, 3)]
    turns = await place.memories.turns(ROOM, 0, 3, 100)
    assert [turn.name for turn in turns] == ["bob", "bob"]
    assert await place.memories.add_episode(
        watermarks, Gap(1, 3), made(MemoryKind.EPISODE, turns, "Bob."), turns
    )
    assert await place.gaps() == []
    assert await place.texts(MemoryKind.EPISODE) == ["Bob.", "cid was there"]


async def test_what_was_read_before_somebody_was_forgotten_is_not_stored_after(
    tmp_path: Path, stores: Stores, place: Frogs
) -> None:
    watermarks = await place.memories.progress(ROOM)
    turns = await place.memories.turns(ROOM, 6, 8, 100)
    await forget(place.log, ADA, tmp_path)
    late = made(MemoryKind.EPISODE, turns, f"{SECRET} again")
    assert not await place.memories.add_episode(watermarks, 8, late, turns)
    assert not await place.memories.advance_facts(
        watermarks, 8, [fact(SECRET, SECRET, "x", 8)], NOON
    )
    assert not await place.memories.save_prompt_view(watermarks, SECRET, 8)
    assert SECRET.encode() not in stores.raw()


@pytest.mark.parametrize("how", ["cleared", "forgotten", "opted out"])
async def test_what_was_read_before_a_forgetting_is_void_also_in_a_room_without_memories(
    tmp_path: Path, log: ChatLog, how: str
) -> None:
    place = Frogs(log.database, log)
    for number, nick in enumerate((SECRET, "bob", "bob")):
        await place.asks(number, nick)
    watermarks = await place.memories.progress(ROOM)
    turns = await place.memories.turns(ROOM, 0, 3, 100)
    if how == "cleared":
        await place.conversations.clear(f"{ROOM}/{SECRET}")
    elif how == "forgotten":
        await forget(log, ADA, tmp_path)
    else:
        await redact(log.database, "irc", SECRET)
    late = made(MemoryKind.EPISODE, turns, f"{SECRET} again")
    assert not await place.memories.add_episode(watermarks, 3, late, turns)
    assert await place.texts(MemoryKind.EPISODE) == []


async def test_whoever_keeps_the_file_forgets_somebody_of_whom_only_memories_are_left(
    tmp_path: Path, stores: Stores, place: Frogs
) -> None:
    everything = Query(scope=EVERYTHING, limit=1_000)
    ids = [event.id for event in await place.log.find(everything)]
    await deletion.remove(place.log.database, ids)
    await place.database.execute_outside_transaction("DELETE FROM turns")
    await forget(place.log, NamedPerson("irc", nick=SECRET.upper()), tmp_path)
    assert SECRET.encode() not in stores.raw()
    assert [each.subject for each in await place.memories.facts(ROOM)] == ["bob"]


async def test_in_another_tendrils_file_goes_what_was_made_of_a_turn_that_quotes_them(
    tmp_path: Path, stores: Stores, place: Frogs
) -> None:
    async with Database.open(stores("web")) as web:
        (word,) = await place.log.add([said(f"my word is {SECRET}", SECRET, 30)])
        for text, quotes in ((f"they said: {SECRET}", [word]), ("they said: a word", [])):
            note = Memory(
                layer=MemoryKind.NOTE, room="web", text=text, time=NOON, conversation="web"
            )
            await Memories(web).add(note)
            question = {"role": "user", "content": "who?", "name": "me"}
            answer = {"role": "assistant", "content": text, "quotes": quotes}
            await Conversations(web).add("web", Turn(0, NOON, (question, answer)))
        await forget(place.log, ADA, tmp_path)
        left = await Memories(web).latest("web", MemoryKind.NOTE)
        assert [memory.text for memory in left] == ["they said: a word"]
        assert SECRET.encode() not in stores.raw()


async def test_a_namesake_keeps_what_they_have_said_of_themselves(
    tmp_path: Path, place: Frogs
) -> None:
    other = replace(said("another one asks", SECRET, 20), host="cafe.example", user="~x")
    (anchor,) = await place.log.add([other])
    message = {"role": "user", "content": "another one asks", "name": SECRET}
    turn = await place.conversations.add(f"{ROOM}/{SECRET}", Turn(anchor, NOON, (message,)), ROOM)
    await place.memories.add(fact(SECRET, SECRET, "tea", turn))
    await forget(place.log, ADA, tmp_path)
    facts = await place.memories.facts(ROOM)
    assert {(each.subject, each.key) for each in facts} == {("bob", "pet"), (SECRET, "tea")}


async def test_whoever_has_opted_out_is_shown_nowhere_and_nothing_is_learnt_of_them(
    place: Frogs,
) -> None:
    await OptOuts(place.database).add("irc", Identity(SECRET))
    assert {each.subject for each in await place.memories.facts(ROOM)} == {"bob"}
    assert await place.texts(MemoryKind.SUMMARY) == []
    await redact(place.database, "irc", SECRET)
    watermarks = await place.memories.progress(ROOM)
    assert watermarks.wanted == 6
    assert await place.gaps() == [Gap(1, 3)]
    turns = await place.memories.turns(ROOM, 0, 100, 100)
    assert SECRET not in {turn.person for turn in turns}
    await place.memories.advance_facts(watermarks, 8, [fact(SECRET, "bob", "car", 7)], NOON)
    rows = await place.database.fetch_all("SELECT 1 FROM memories WHERE key = 'car'")
    assert rows == []


async def test_memories_go_with_the_time_for_which_things_are_kept(place: Frogs) -> None:
    settings = StorageSettings(retention_days=1)
    late = NOON + timedelta(days=2)
    await place.memories.add(replace(fact("bob", "bob", "new", 99), time=late))
    await expire(place.log, settings, late + timedelta(minutes=30))
    (left,) = await place.memories.facts(ROOM)
    assert left.key == "new"
    assert await place.texts(MemoryKind.SUMMARY) == await place.texts(MemoryKind.EPISODE) == []
    assert (await place.memories.load_for_prompt(ROOM, "bob", "car", 5)).shown == ""


async def test_two_jobs_that_read_the_same_turns_store_them_once(place: Frogs) -> None:
    watermarks = await place.memories.progress(ROOM)
    turns = await place.memories.turns(ROOM, 6, 8, 100)
    episode = made(MemoryKind.EPISODE, turns, "once")
    results = await asyncio.gather(
        *(place.memories.add_episode(watermarks, 8, episode, turns) for _ in range(3))
    )
    assert sorted(results) == [False, False, True]
    assert (await place.texts(MemoryKind.EPISODE)).count("once") == 1
