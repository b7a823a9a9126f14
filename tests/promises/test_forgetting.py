"""Whoever asks to be forgotten is forgotten, also when something is in the way at first."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from sqlite3 import connect

import pytest

from llm.client.client import AgentClient, ModelCatalog
from llm.client.settings import AgentSettings
from llm.memory.consolidation import TendrilMemory
from llm.memory.room import RoomMemory
from llm.memory.settings import MemorySettings
from storage.chat_log.event import EVERYTHING, SPOKEN
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations
from storage.memory.memories import Memories, Memory, MemoryKind
from storage.privacy.pending_erasures import PendingErasures
from storage.queues.jobs import Jobs
from tests.harnesses.core.tendril.test_base import small
from tests.kit.clock import ManualClock
from tests.kit.command import terrarium
from tests.kit.data_files import files_with
from tests.kit.forgetting import TRACES, Fault, fill, forget_in_child, leftovers, turn
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_scene import NOBODY, alice_in
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd
from tests.kit.lines import NOON
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import until
from tests.kit.stores import locked

NICK, WORD = "zoequux", "xyzzyplughplover"


async def forget_me(client: IrcClient) -> str:
    """Ask to be forgotten, and confirm; return what is said then."""
    return await client.told(f".forget me {(await client.told('.forget me')).split()[-1]}")


async def is_finished(data: Path) -> bool:
    """Return True if nothing is left to be forgotten."""
    async with Database.open(data / "irc.db") as database:
        return not await PendingErasures(database).list_all()


async def quote_in(path: Path, log: ChatLog) -> None:
    """Let another tendril have quoted the last line of the person."""
    await log.flush()
    (line,) = await log.find(Query(scope=EVERYTHING, types=SPOKEN, own=False, limit=1))
    asking = turn(0, "hm?", f"She said {WORD}.", "So.", quotes=[line.id])
    async with Database.open(path) as database:
        await Conversations(database).add("browser/1", asking)


async def test_a_forgetting_that_is_not_finished_goes_on_at_the_next_start(tmp_path: Path) -> None:
    async with embedded_ircd() as ircd:
        config = irc_config(tmp_path, ircd.port, NOBODY)
        async with irc_tendril(config) as tendril, irc_client(ircd.port, NICK) as zoe:
            await zoe.join(ROOM)
            await zoe.say(ROOM, f"my word is {WORD}")
            await zoe.told(".stop")  # so that the line before is logged
            await quote_in(tmp_path / "web.db", tendril.services.log)
            with locked(tmp_path / "web.db"):
                answer = await forget_me(zoe)
                assert answer.startswith("Not finished: ")
                assert "I will try again every hour" in answer
                again = await zoe.told(".forget me")
                assert again.startswith("Nothing else in the log is known to be yours.")
                assert "I will try again every hour" in again
        assert "web.db" in files_with(tmp_path, NICK, WORD)
        async with irc_tendril(config):
            await until(lambda: is_finished(tmp_path))
    assert "web.db" not in files_with(tmp_path, NICK, WORD)
    with closing(connect(tmp_path / "irc.db")) as file:
        assert file.execute("SELECT count(*) FROM erasures").fetchone() == (0,)
        audit = file.execute("SELECT actor, action, target FROM audit").fetchall()
    assert [row[:2] for row in audit] == [("", "forget")]


async def test_a_forgetting_that_cannot_be_recorded_removes_nothing(tmp_path: Path) -> None:
    async with alice_in(tmp_path, NOBODY) as (alice, tendril):
        await alice.say(ROOM, WORD)
        await alice.ping()
        log = tendril.services.log
        await log.flush()
        # So many that their ids do not fit into the free part of a page.
        (line,) = await log.find(Query(scope=EVERYTHING, types=SPOKEN, nick="alice", limit=1))
        await log.add([line] * 1_000)
        word = (await alice.told(".forget me")).split()[-1]
        database = tendril.database
        await database.execute_outside_transaction("PRAGMA max_page_count = 1")  # as it is now
        answer = await alice.told(f".forget me {word}")
        assert answer.startswith("Nothing has been deleted: I cannot write to the disk.")
        assert "1,003 events of yours" in await alice.told(".forget me")
        await database.execute_outside_transaction("PRAGMA max_page_count = 1000000")
        assert (await forget_me(alice)).startswith("Forgotten: 1,003 events of yours")
        assert files_with(tmp_path, NICK, WORD) == []


async def test_asking_again_finishes_it_with_what_the_bot_told_the_person_in_private(
    tmp_path: Path,
) -> None:
    async with (
        embedded_ircd() as ircd,
        irc_tendril(irc_config(tmp_path, ircd.port, NOBODY)) as tendril,
        irc_client(ircd.port, NICK) as zoe,
    ):
        await zoe.join(ROOM)
        await zoe.say(ROOM, f"my word is {WORD}")
        assert (await zoe.told(".stop")).startswith("There is nothing to stop")
        await quote_in(tmp_path / "web.db", tendril.services.log)
        with locked(tmp_path / "web.db"):
            assert (await forget_me(zoe)).startswith("Not finished: ")
        assert "know of nothing that is yours" in await zoe.told(".forget me")
        assert files_with(tmp_path, NICK, WORD) == []


@pytest.mark.slow
@pytest.mark.process
async def test_every_tendril_goes_on_with_a_forgetting_when_it_starts(tmp_path: Path) -> None:
    await fill(tmp_path)
    fault = Fault(longest_file=(tmp_path / "irc.db").stat().st_size // 2)
    assert await asyncio.to_thread(forget_in_child, tmp_path, fault) == "not finished"
    async with ScriptedOpenAI() as script, small(tmp_path, script.url):
        await until(lambda: is_finished(tmp_path))
    assert leftovers(tmp_path) == []


@pytest.mark.slow
async def test_who_keeps_the_files_forgets_a_person_in_all_of_them(tmp_path: Path) -> None:
    await fill(tmp_path)
    command = ("logs", "forget", "--nick", TRACES[0], "--yes", "--data", ".")
    with locked(tmp_path / "web.db"):
        done = await terrarium(*command, cwd=tmp_path)
        assert done.status == 1
        assert "not finished" in done.err
    assert "web.db" in {each.split(":")[0] for each in leftovers(tmp_path)}
    done = await terrarium(*command, cwd=tmp_path)
    assert done.status == 0, done.err
    assert leftovers(tmp_path) == []


class ForgottenMeanwhile(Memories):
    """Memories of which the person's are forgotten between the reading of facts and of the rest."""

    async def latest(self, room: str, layer: MemoryKind, limit: int = -1) -> list[Memory]:
        """Forget the person, then return the newest memories of a kind."""
        await self.forget(room, NICK)
        return await super().latest(room, layer, limit)


async def test_what_is_forgotten_while_a_prompt_is_made_is_in_no_later_one(tmp_path: Path) -> None:
    async with (
        Database.open(tmp_path / "irc.db") as database,
        AgentClient.open(AgentSettings()) as client,
    ):
        memory = TendrilMemory(
            "irc",
            MemorySettings(),
            client,
            ModelCatalog(client),
            ManualClock(NOON),
            Jobs(database),
            Memories(database),
        )
        theirs = RoomMemory.of(memory, ROOM, f"{ROOM}/{NICK}", NICK)
        await theirs.store(WORD, "word")
        memory = replace(memory, memories=ForgottenMeanwhile(database))
        room = RoomMemory.of(memory, ROOM, "c", "bob")
        await Conversations(database).add("c", turn(0, "hi", "Hello."), ROOM, "bob")
        await room.sections("hello")
        stable, beside = await room.sections("hello")
        assert not [section for section in (*stable, *beside) if WORD in section.text]
