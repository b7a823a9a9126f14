"""Supervision of child processes: restarted when they die, ended together."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from harnesses.core.errors import TendrilError
from terrarium.backoff import Backoff
from terrarium.supervision import SUPERVISED, end_child

EX_CONFIG = 78
"""Exit status of sysexits.h for a configuration that cannot be used: trying again is no use."""

_STDERR = 2


class ChildConfigError(TendrilError):
    """A child cannot use its configuration."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} cannot work with this configuration (it says why above); stopping everything"
        )


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run: its name for people, its command, and additions to our environment."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Restart times in seconds: the first and the longest wait before a restart, the uptime that
    resets it, and the time a child has to end after SIGTERM."""

    first: float = 0.5
    longest: float = 30.0
    stable: float = 60.0
    ending: float = 4.0


class Supervisor:
    """Keeps programs running; `say` gets a line for people whenever one has died.

    `pids` has the process of each program that runs at the moment.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        say: Callable[[str], None],
        patience: RestartPolicy | None = None,
    ) -> None:
        self.pids: dict[str, int] = {}
        self._programs = programs
        self._say = say
        self._patience = patience or RestartPolicy()

    async def run(self) -> None:
        """Keep all running until cancelled, then end them and their children.

        Raises ChildConfigError (in an ExceptionGroup) when one ends with EX_CONFIG.
        """
        async with asyncio.TaskGroup() as tasks:
            for program in self._programs:
                tasks.create_task(self._restart_loop(program))

    async def _restart_loop(self, program: Program) -> None:
        backoff = Backoff(self._patience.first, self._patience.longest, self._patience.stable)
        while True:
            backoff.mark_started()
            how = await self._run_once(program)
            wait = backoff.delay()
            self._say(f"{program.name} {how}; starting it again in {wait:g} s")
            await asyncio.sleep(wait)

    async def _run_once(self, program: Program) -> str:
        """Run a program to its end; return how it ended, for people."""
        try:
            async with running(program, self._patience.ending) as process:
                self.pids[program.name] = process.pid
                try:
                    code = await process.wait()
                finally:
                    del self.pids[program.name]
        except OSError as error:  # no memory, no process left: the others go on
            return f"could not be started ({error.strerror})"
        if code == EX_CONFIG:
            raise ChildConfigError(program.name)
        return f"ended (signal {-code})" if code < 0 else f"ended (exit code {code})"


@asynccontextmanager
async def running(program: Program, ending: float) -> AsyncIterator[Process]:
    """Run a process of `program`; on leaving, it and its whole session are ended.

    It has `ending` seconds for that. It is in a session of its own, so that Ctrl-C reaches only
    us, and it has a pipe as standard input that closes when we end in whatever way (see
    `terrarium.supervision`). What it prints goes to our standard error. Raises OSError.
    """
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
        await end_child(process, ending)
