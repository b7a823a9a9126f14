"""A turn killed between any two steps: nothing it changed is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llm.agent.agent_loop import AgentLoop
from llm.agent.tool_executor import RunLimits
from llm.agent.trace import Outcome, Trace
from llm.client.client import AgentClient, RequestOptions
from llm.client.settings import AgentSettings
from llm.messages.message import Message
from llm.tools.toolbox import EffectKey, Toolbox, tool
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.outbox import Outbox
from storage.runs.runs import Effect, Run, RunEnd, Runs, Step
from tests.kit.openai_script import Answer, ScriptedOpenAI

POND = Place("irc", "#pond")
POINTS = 13
WITHIN_KICK = (7, 8)  # the points at which nobody knows whether somebody was kicked


class Fate:
    """Kills the process at a point, counted from 0."""

    def __init__(self, point: int) -> None:
        self._left = point

    def comes(self) -> None:
        """One more point is reached."""
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class MortalRuns(Runs):
    """Runs of which each writing has a point before and a point after it."""

    def __init__(self, database: Database, fate: Fate) -> None:
        super().__init__(database)
        self._fate = fate

    async def begin(self, run: Run) -> list[Effect]:
        self._fate.comes()
        effects = await super().begin(run)
        self._fate.comes()
        return effects

    async def begin_effect(self, run: str, effect: Effect) -> None:
        self._fate.comes()
        await super().begin_effect(run, effect)

    async def end_effect(self, run: str, effect: Effect) -> None:
        await super().end_effect(run, effect)
        self._fate.comes()

    async def end(self, run: str, ended: RunEnd, steps: Sequence[Step]) -> None:
        self._fate.comes()
        await super().end(run, ended, steps)
        self._fate.comes()


class Pond:
    """What can be done there, each with a point before and a point after it."""

    def __init__(self, outbox: Outbox, kicks: Path, fate: Fate) -> None:
        self._outbox, self._kicks, self._fate = outbox, kicks, fate

    @tool(effect=True, keyed=True)
    async def post(self, text: str, key: EffectKey) -> str:
        """Post a text to the channel."""
        self._fate.comes()
        await self._outbox.put(key, POND, text)
        self._fate.comes()
        return "posted"

    @tool(effect=True)
    async def kick(self, nick: str) -> str:
        """Remove somebody from the channel."""
        self._fate.comes()
        with self._kicks.open("a") as file:
            file.write(f"{nick}\n")
        self._fate.comes()
        return "kicked"

    @tool(reads=True)
    async def look(self) -> str:
        """Look around."""
        self._fate.comes()
        return "a pond"


def plan(body: dict[str, Any]) -> Answer:
    """What the model does next, by what it has done."""
    done = sum(message["role"] == "tool" for message in body["messages"])
    calls = [("post", {"text": "hello"}), ("kick", {"nick": "eve"}), ("look", {})]
    if done == len(calls):
        return Answer("All is done.")
    name, arguments = calls[done]
    return Answer(calls=((name, json.dumps(arguments)),))


async def turn(data: Path, url: str, point: int) -> Outcome:
    """One attempt at the run; it dies at a point, or at none."""
    fate = Fate(point)
    settings = AgentSettings(api_url=url)
    run = Run("reminder/7", "irc/#pond", "job", "terra", datetime.now(UTC))

    async def fit(steps: Sequence[Message]) -> list[Message]:
        return [{"role": "user", "content": "Do it."}, *steps]

    async with Database.open(data / "irc.db") as database, AgentClient.open(settings) as client:
        runs = MortalRuns(database, fate)
        await runs.interrupt()
        toolbox = Toolbox.from_owners(Pond(Outbox(database), data / "kicks", fate))
        async with Trace(run, runs) as trace:
            trace.outcome = await AgentLoop(
                client, toolbox, RequestOptions("a"), RunLimits.from_settings(settings), trace=trace
            ).run(fit)
        await trace.close()
        return trace.outcome


def life(data: Path, url: str, point: int) -> None:
    asyncio.run(turn(data, url, point))


async def killed(data: Path, url: str, point: int) -> int:
    """The exit code of a process that makes an attempt."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=life, args=(data, url, point))
    process.start()
    await asyncio.to_thread(process.join)
    code = process.exitcode
    process.close()
    assert code is not None
    return code


async def outcomes(data: Path) -> list[str]:
    async with Database.open(data / "irc.db") as database:
        return [row[0] for row in await database.fetch_all("SELECT outcome FROM runs")]


async def test_a_turn_killed_between_any_two_steps_loses_nothing_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script:
        script.default = plan
        deaths = 0
        for point in range(POINTS):
            data = tmp_path / str(point)
            data.mkdir()
            deaths += await killed(data, script.url, point) == -signal.SIGKILL
            outcome = await turn(data, script.url, -1)
            assert outcome.text == "All is done.", point
            assert await outcomes(data) == ["answered"], point
            async with Database.open(data / "irc.db") as database:
                waiting = [message.text for message in await Outbox(database).list_unsent()]
            assert waiting == ["hello"], point
            kicks = (data / "kicks").read_text().split() if (data / "kicks").exists() else []
            told = json.dumps(outcome.messages)
            if kicks != ["eve"]:
                assert (point, kicks) == (WITHIN_KICK[0], []), point
            assert ("nobody knows whether it is done" in told) == (point in WITHIN_KICK), point
        assert deaths == POINTS


async def test_a_run_that_a_crash_broke_off_is_closed_at_the_next_start(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        script.default = plan
        assert await killed(tmp_path, script.url, 5) == -signal.SIGKILL
        assert await outcomes(tmp_path) == ["running"]
        async with Database.open(tmp_path / "irc.db") as database:
            assert await Runs(database).interrupt() == 1
        assert await outcomes(tmp_path) == ["interrupted"]
