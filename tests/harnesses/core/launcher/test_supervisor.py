"""The supervisor over real processes: what dies comes back, what must end ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from harnesses.core.launcher.supervisor import (
    ChildConfigError,
    Program,
    RestartPolicy,
    Supervisor,
    running,
)
from tests.kit.lives import Life, Lives, lives
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.process
QUICK = RestartPolicy(first=0.05, longest=0.2, stable=60, grace=0.5)


class Watched:
    """A running supervisor and the lines it says."""

    def __init__(self, *programs: Program) -> None:
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self.supervisor = Supervisor(programs, self._lines.put_nowait, QUICK)

    async def said(self) -> str:
        async with asyncio.timeout(PATIENCE):
            return await self._lines.get()


@asynccontextmanager
async def supervised(place: Lives, **manners: str) -> AsyncIterator[Watched]:
    watched = Watched(*(Program(n, place.command(n, m)) for n, m in manners.items()))
    task = asyncio.create_task(watched.supervisor.run())
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.wait([task])


async def born(place: Lives, count: int) -> dict[str, Life]:
    return {life.name: life for life in [await place.born() for _ in range(count)]}


async def test_one_that_is_killed_comes_back_and_the_others_go_on() -> None:
    async with lives() as place, supervised(place, a="obedient", b="obedient") as watched:
        first = await born(place, 2)
        assert watched.supervisor.pids == {name: life.pid for name, life in first.items()}
        os.kill(first["a"].pid, signal.SIGKILL)
        assert await watched.said() == "a ended (signal 9); starting it again in 0.05 s"
        again = await place.born()
        assert again.name == "a"
        assert again.pid == watched.supervisor.pids["a"] != first["a"].pid
        assert not first["b"].gone.is_set()


async def test_one_that_keeps_failing_is_started_more_and_more_slowly() -> None:
    async with lives() as place, supervised(place, a="exit3") as watched:
        for wait in ("0.05", "0.1", "0.2", "0.2"):
            await (await place.born()).let_go()
            assert await watched.said() == f"a ended (exit code 3); starting it again in {wait} s"


async def test_a_program_that_cannot_be_started_is_tried_again_while_the_others_go_on() -> None:
    async with lives() as place:
        watched = Watched(
            Program("lost", ["/nonexistent"]), Program("a", place.command("a", "obedient"))
        )
        task = asyncio.create_task(watched.supervisor.run())
        life = await place.born()
        said = await watched.said()
        assert said.startswith("lost could not be started (No such file or directory)")
        assert not life.gone.is_set()
        task.cancel()
        await asyncio.wait([task])
        await life.ended()


async def test_stopping_ends_all_also_one_that_will_not_and_what_it_started() -> None:
    async with lives() as place:
        async with supervised(place, a="obedient", b="stubborn", c="parent"):
            begun = await born(place, 4)
        assert set(begun) == {"a", "b", "c", "c-child"}
        for life in begun.values():
            await life.ended()


@pytest.mark.parametrize(
    ("manner", "first", "last"),
    [("obedient", "a", "server"), ("stubborn", "server", "a")],  # which is not waited for
)
async def test_what_serves_the_others_is_ended_after_them(
    manner: str, first: str, last: str
) -> None:
    async with lives() as place:
        programs = [
            Program("server", place.command("server", "obedient"), serves=True),
            Program("a", place.command("a", manner)),
        ]
        policy = replace(QUICK, grace=2)
        task = asyncio.create_task(Supervisor(programs, lambda _: None, policy).run())
        begun = await born(place, 2)
        task.cancel()
        await begun[first].ended()
        assert not begun[last].gone.is_set()
        await begun[last].ended()
        await asyncio.wait([task])


async def test_what_a_dead_one_left_behind_is_ended_before_it_is_started_again() -> None:
    async with lives() as place, supervised(place, a="parent"):
        begun = await born(place, 2)
        os.kill(begun["a"].pid, signal.SIGKILL)
        await begun["a-child"].ended()
        assert set(await born(place, 2)) == {"a", "a-child"}


async def test_a_configuration_that_cannot_work_ends_everything() -> None:
    async with lives() as place:
        watched = Watched(
            Program("a", place.command("a", "exit78")), Program("b", place.command("b", "obedient"))
        )
        task = asyncio.create_task(watched.supervisor.run())
        begun = await born(place, 2)
        await begun["a"].let_go()
        with pytest.RaisesGroup(ChildConfigError):
            await task
        await begun["b"].ended()


async def test_a_child_has_the_environment_we_give_it_and_knows_that_it_is_supervised() -> None:
    check = (
        "import os, sys; assert os.environ['TERRARIUM_SUPERVISED'] == '1';"
        "assert os.environ['PLACE'] == 'here' and 'PATH' in os.environ;"
        "assert os.getsid(0) == os.getpid(); sys.exit(42)"
    )
    program = Program("a", [sys.executable, "-c", check], {"PLACE": "here"})
    async with running(program, grace=1) as process:
        assert await process.wait() == 42


async def test_a_supervisor_that_is_killed_takes_its_children_along() -> None:
    async with lives() as place:
        command = place.command("a", "obedient")
        supervisor = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _SUPERVISOR, *command, stdin=asyncio.subprocess.DEVNULL
        )
        life = await place.born()
        supervisor.kill()
        await supervisor.wait()
        await life.ended()


_SUPERVISOR = """
import asyncio, sys
from harnesses.core.launcher.supervisor import Program, Supervisor
asyncio.run(Supervisor([Program("a", sys.argv[1:])], print).run())
"""
