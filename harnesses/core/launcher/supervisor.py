"""Supervision of child processes: restarts with backoff, and a common shutdown."""

from __future__ import annotations

import asyncio
import os
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from harnesses.core.errors import TendrilError
from terrarium.clock import Backoff
from terrarium.supervision import SUPERVISED, end_child

EX_CONFIG = 78
"""Exit status of sysexits.h for an unusable configuration: a restart would not help."""

_STDERR = 2


class ChildConfigError(TendrilError):
    """A child ended with `EX_CONFIG`."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} cannot work with this configuration (it says why above); stopping everything"
        )


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run: its display name, its command line, and additions to our environment.

    One that `serves` the others is ended after them, so that they can finish their work.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    serves: bool = False

    def having(self, environment: Mapping[str, str]) -> Program:
        """Return the program with more environment variables."""
        return replace(self, environment={**self.environment, **environment})


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Times in seconds: the first and the longest delay before a restart, the uptime that resets
    the delay to the first, and the grace period between SIGTERM and SIGKILL. Programs
    that serve the others get what those leave of it, at least a third."""

    first: float = 0.5
    longest: float = 30.0
    stable: float = 10.0
    grace: float = 4.0


class Supervisor:
    """Keeps programs running; `say` receives a line for people whenever one has ended.

    `pids` holds the process ids of the programs that run at the moment, by name.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        say: Callable[[str], None],
        policy: RestartPolicy | None = None,
    ) -> None:
        self.pids: dict[str, int] = {}
        self._programs, self._say = programs, say
        self._policy = policy or RestartPolicy()
        self._serves = {each.name for each in programs if each.serves}
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Keep all programs running until cancelled, then end them and their child processes.
        Raises ChildConfigError (in an ExceptionGroup) if one ends with EX_CONFIG."""

        async def keep(program: Program) -> None:
            backoff = Backoff(self._policy.first, self._policy.longest, self._policy.stable)
            while True:
                backoff.mark_started()
                how = await self._run_once(program)
                wait = backoff.delay()
                self._say(f"{program.name} {how}; starting it again in {wait:g} s")
                await asyncio.sleep(wait)

        async with asyncio.TaskGroup() as tasks:
            for program in self._programs:
                tasks.create_task(keep(program))

    async def _run_once(self, program: Program) -> str:
        """Run a program to its end; return a text for people that says how it ended."""
        grace = self._policy.grace
        try:
            async with running(program, grace) as process:
                self.pids[program.name] = process.pid
                try:
                    code = await process.wait()
                except asyncio.CancelledError:
                    if program.serves:  # the others may need it to finish their work
                        began = time.monotonic()
                        with suppress(TimeoutError):
                            async with asyncio.timeout(grace * 2 / 3):
                                while self.pids.keys() - self._serves:
                                    self._ended.clear()
                                    await self._ended.wait()
                        await end_child(process, grace - (time.monotonic() - began))
                    raise
        except OSError as error:  # e.g. out of memory or processes: the other programs go on
            return f"could not be started ({error.strerror})"
        finally:
            self.pids.pop(program.name, None)
            self._ended.set()
        if code == EX_CONFIG:
            raise ChildConfigError(program.name)
        return f"ended (signal {-code})" if code < 0 else f"ended (exit code {code})"


@asynccontextmanager
async def running(program: Program, grace: float) -> AsyncIterator[Process]:
    """Run a process of `program`, and end it and its whole session on leaving.

    It has `grace` seconds to end after SIGTERM. Its output goes to our standard error. Raises
    OSError.
    """
    # A session of its own keeps Ctrl-C at the terminal from reaching the child: we end it in order.
    # The pipe closes even if we are killed, which tells the child to end (`terrarium.supervision`).
    process = await asyncio.create_subprocess_exec(
        *program.command,
        stdin=PIPE,
        stdout=_STDERR,
        start_new_session=True,
        env={**os.environ, SUPERVISED: "1", **program.environment},
    )
    try:
        yield process
    finally:
        await end_child(process, grace)
