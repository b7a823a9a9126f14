"""A tendril that is killed between any two steps loses nothing that was remembered, and makes
nothing of any turn twice."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import re
import signal
import struct
from datetime import UTC, datetime, timedelta
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from harnesses.core.tendril.turn import TurnRequest
from storage.db.database import Database
from storage.memory.conversations import Conversations
from storage.memory.memories import MemoryKind
from terrarium.config import Config
from tests.kit.clock import ManualClock
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.small_tendril import SmallTendril
from tests.kit.summing import seen

ROUNDS = 8
ASKED = 12  # questions of a life
LONGEST = 0.5  # seconds from the first answer of a life to its end
ROOM = "pond"
NUMBER = struct.Struct("q")


def config(data: Path, url: str) -> Config:
    return Config({"agent": {"api_url": url}}, None, data)


def live(data: Path, url: str, begin: int, tell: Connection) -> None:
    """Ask some questions, tell which ones were kept, and end soon; run in another process."""

    async def ask(tendril: SmallTendril) -> None:
        for number in range(begin, begin + ASKED):
            await tendril.turn(TurnRequest(conversation=ROOM, who="ada", text=f"q{number}"))
            tell.send_bytes(NUMBER.pack(number))
            if number == begin:
                end = random.uniform(0, LONGEST)
                asyncio.get_running_loop().call_later(end, os.kill, os.getpid(), signal.SIGKILL)

    async def work() -> None:
        async with SmallTendril(config(data, url)).living() as tendril:
            await ask(tendril)

    asyncio.run(work())


class Lives:
    """One data folder, and the processes that live and die on it."""

    def __init__(self, data: Path, script: ScriptedOpenAI) -> None:
        self._data = data
        self._script = script
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.llm.memory.test_memory_crash"])
        self.told: set[int] = set()
        self.begun = 0

    async def one(self, deadly: int) -> None:
        """A life that ends while memory asks the model for the `deadly`th time, or a moment after
        its first answer if that comes earlier."""
        mine, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=live, args=(self._data, self._script.url, self.begun, theirs)
        )
        asked = count(1)

        def summed(body: dict[str, Any]) -> str:
            if next(asked) == deadly:
                process.kill()
            return seen(body)

        self._script.summed = summed
        process.start()
        theirs.close()
        numbers = await asyncio.to_thread(_numbers, mine)
        await asyncio.to_thread(process.join)
        process.close()
        self.told |= numbers
        self.begun += ASKED  # what was not told may have been kept


def _numbers(mine: Connection) -> set[int]:
    numbers = set()
    try:
        while True:
            numbers.add(NUMBER.unpack(mine.recv_bytes())[0])
    except EOFError:
        mine.close()
        return numbers


async def made_in(tendril: SmallTendril, layer: MemoryKind) -> list[str]:
    """The words like q12 of a layer, as often as they are there."""
    memories = await tendril.memory.memories.latest(ROOM, layer, -1)
    return [word for memory in memories for word in re.findall(r"q\d+", memory.text)]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_whatever_was_said_is_made_something_of_once_however_often_it_is_killed(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script:
        lives = Lives(tmp_path, script)
        for number in range(ROUNDS):
            await lives.one(deadly=1 + number % 4)
        script.summed = seen
        clock = ManualClock(datetime.now(UTC) + timedelta(hours=80))
        async with SmallTendril(config(tmp_path, script.url), clock).living() as tendril:
            for _ in range(3):  # what was dead is added again, and what comes of it
                await clock.advance(timedelta(hours=1))  # what was killed last is due again
                await tendril.turn(TurnRequest(conversation=ROOM, who="ada", text="once more"))
                await tendril.settled()
            watermarks = await tendril.memory.memories.progress(ROOM)
            kept = await tendril.conversations.turns(ROOM)
            episodes = await made_in(tendril, MemoryKind.EPISODE)
            summary = await made_in(tendril, MemoryKind.SUMMARY)
            assert not await tendril.jobs.all("running", "waiting")
        said = [turn.messages[0]["content"] for turn in kept]
        assert lives.told <= {int(text[1:]) for text in said if text.startswith("q")}
        assert len(kept) == len({turn.id for turn in kept})
        told = [t.messages[0]["content"] for t in kept if t.id <= watermarks.episodes]
        assert len(told) > len(kept) - 3
        assert episodes == [text for text in told if text.startswith("q")][-len(episodes) :]
        folded = [t.messages[0]["content"] for t in kept if t.id <= watermarks.summary]
        assert summary == [text for text in folded if text.startswith("q")]
        assert len(kept) - len(folded) <= 40


async def test_what_is_remembered_while_a_summary_is_made_is_there_afterwards(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedOpenAI() as script,
        SmallTendril(config(tmp_path, script.url)).living() as tendril,
    ):
        script.call("remember", {"key": "pet", "value": "frog"}).say("Sure.")
        pet = "my pet is a {}"
        await tendril.turn(TurnRequest(conversation=ROOM, who="ada", text=pet.format("frog")))
        answering = asyncio.Event()

        def summed(body: dict[str, Any]) -> str:
            answering.set()
            return seen(body)

        script.summed = summed
        script.say("ok").say("ok").call("remember", {"key": "pet", "value": "toad"})
        script.say("Sure.").call("remember", {"value": "a note"}).say("Sure.")
        for number in (2, 3):
            await tendril.turn(TurnRequest(conversation=ROOM, who="ada", text=f"q{number}"))
        await answering.wait()
        await tendril.turn(TurnRequest(conversation=ROOM, who="ada", text=pet.format("toad")))
        await tendril.turn(
            TurnRequest(conversation=f"{ROOM}/bob", who="bob", text="a note", room=ROOM)
        )
        await tendril.settled()
        memories = tendril.memory.memories
        assert [fact.text for fact in await memories.facts(ROOM, "ada")] == ["toad"]
        notes = await memories.latest(ROOM, MemoryKind.NOTE, -1)
        assert [note.text for note in notes] == ["a note"]
        assert await made_in(tendril, MemoryKind.EPISODE) == ["q2", "q3"]
    async with Database.open(tmp_path / "small.db") as database:
        kept = await Conversations(database).turns(ROOM)
        assert "remember" in json.dumps([turn.messages for turn in kept])
