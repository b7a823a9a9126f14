"""A tendril as a process of its own: it ends when told to, and never outlives its supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harnesses.core.tendril.status import ProcessState, read_report
from harnesses.core.tendril.turns import RESTARTED
from terrarium import ChatTendril, CommandRequest
from terrarium import command as mark
from terrarium.supervision import SUPERVISED
from tests.harnesses.core.tendril.test_base import state_of
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.room_tendril import RoomTendril, room_tendril, rooms_config

ROOT = Path(__file__).parents[4]
SUPERVISOR = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
child.wait()
"""


def command(data: Path, url: str) -> list[str]:
    return [sys.executable, "-m", "tests.kit.small_tendril", str(data), url]


@asynccontextmanager
async def process(*arguments: str, supervised: bool = False) -> AsyncIterator[Process]:
    """A process that is ended with what it started, its output in a pipe."""
    environment = os.environ | {SUPERVISED: "1" if supervised else "0"}
    started = await asyncio.create_subprocess_exec(
        *arguments, cwd=ROOT, env=environment, stdin=PIPE, stdout=PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield started
    finally:
        assert started.stdin
        started.stdin.close()
        if started.returncode is None:
            os.killpg(started.pid, signal.SIGKILL)
        await started.wait()


async def hanging(data: Path, script: ScriptedOpenAI) -> None:
    """A tendril that is in the midst of a turn."""
    await script.arrived()
    assert state_of(data) is ProcessState.READY


def question(data: Path) -> None:
    for name in ("kitchen", "pantry"):
        (data / f"{name}.ask").write_text("How many cups?")


def answers(data: Path) -> list[str]:
    return [each.read_text() for each in data.glob("*.answer")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_tendril_ends_when_told_to_and_who_still_waits_is_told_to_ask_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    question(tmp_path)
    async with ScriptedOpenAI() as script:
        script.hang("Well")
        async with process(*command(tmp_path, script.url)) as tendril:
            await hanging(tmp_path, script)
            tendril.send_signal(number)
            assert await tendril.wait() == 0
            await script.client_gone()
        said = read_report(tmp_path, "small")
        assert said
        assert (said.state, said.pid) == (ProcessState.STOPPED, tendril.pid)
    # The second was asked while the tendril was stopping.
    assert answers(tmp_path) == [RESTARTED] * 2


async def test_a_question_is_answered_while_the_tendril_stops(tmp_path: Path) -> None:
    question(tmp_path)
    async with ScriptedOpenAI() as script:
        script.think("Seven.")
        async with process(*command(tmp_path, script.url)) as tendril:
            await hanging(tmp_path, script)
            tendril.send_signal(signal.SIGTERM)
            script.release()
            assert await tendril.wait() == 0
        assert len(script.requests) == 1
    assert "Seven." in answers(tmp_path)


async def test_a_tendril_ends_with_its_supervisor_however_that_ends(tmp_path: Path) -> None:
    question(tmp_path)
    async with ScriptedOpenAI() as script:
        script.hang("Well")
        async with process(
            sys.executable, "-c", SUPERVISOR, *command(tmp_path, script.url), supervised=True
        ) as supervisor:
            await hanging(tmp_path, script)
            supervisor.kill()
            assert supervisor.stdout
            await supervisor.stdout.read()  # returns at its end: nobody has it open any more
            await script.client_gone()
        assert state_of(tmp_path) is ProcessState.STOPPED


async def test_a_tendril_that_nobody_supervises_does_without_an_input(tmp_path: Path) -> None:
    question(tmp_path)
    async with ScriptedOpenAI() as script:
        script.hang("Well")
        async with process(*command(tmp_path, script.url)) as tendril:
            assert tendril.stdin
            tendril.stdin.close()
            await hanging(tmp_path, script)
            script.release()
            await script.arrived(2)
            tendril.terminate()
            assert await tendril.wait() == 0


async def test_a_part_that_is_replaced_by_accident_is_named(tmp_path: Path) -> None:
    async with room_tendril(rooms_config(tmp_path)) as tendril:
        with pytest.raises(AttributeError, match=r"self\.client is a part of every tendril"):
            tendril.client = None  # type: ignore[assignment]
        tendril.connection = "ours"  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"self\.cups is a method of RoomTendril"):
            tendril.cups = 7  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError, match=r"Wrong\.memory: self\.memory is a part"):
        type("Wrong", (RoomTendril,), {"memory": lambda self: []})

    async def search(self: ChatTendril, request: CommandRequest) -> str:
        return ""

    with pytest.raises(TypeError, match=r"Wrong\.search: there is a command search already"):
        type("Wrong", (ChatTendril,), {"search": mark(search)})
    with pytest.raises(TypeError, match="there is a command research already"):
        type("Wrong", (ChatTendril,), {"study": mark("research")(search)})
    with pytest.raises(ValueError, match="lower-case letters only"):
        mark("Tea time")(search)
