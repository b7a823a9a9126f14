"""The real `terrarium` command as a child process."""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from harnesses.core.tendril.status import ProcessState, read_report
from tests.kit.patience import PATIENCE, until

_SECTIONS = (
    *("SERVER_", "MODEL_", "ADMISSION_", "USAGE_", "RAY_", "IRC_", "WEB_", "CRON_", "AGENT_"),
    *("STORAGE_", "UP_"),
)


@dataclass(frozen=True, slots=True)
class Done:
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str


async def terrarium(*arguments: str, cwd: Path, said: str = "", **environment: str) -> Done:
    """Run `terrarium ARGUMENTS` to its end in the folder `cwd` with `said` as standard input.

    Terrarium's settings in the caller's environment are not passed on. Raises TimeoutError.
    """
    async with begun(*arguments, cwd=cwd, **environment) as process:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate(said.encode())
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def begun(*arguments: str, cwd: Path, **environment: str) -> AsyncIterator[Process]:
    """Start `terrarium ARGUMENTS` in a new session; kill it on exit if it is still running."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harnesses.cli", *arguments),
        cwd=cwd,
        env=environment_without_settings() | {"COLUMNS": "120", "NO_COLOR": "1"} | environment,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def environment_without_settings() -> dict[str, str]:
    """Return the environment without variables that are settings of Terrarium."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_SECTIONS)}


async def line_with(
    stream: asyncio.StreamReader | None, words: str, seconds: float = PATIENCE
) -> str:
    """Return the next line of `stream` that contains `words`.

    Raises TimeoutError, and AssertionError if the stream ends without such a line.
    """
    assert stream is not None
    seen = []
    async with asyncio.timeout(seconds):
        async for line in stream:
            seen.append(line.decode())
            if words in seen[-1]:
                return seen[-1].rstrip("\n")
    raise AssertionError(f"it ended without {words!r}; it said:\n{''.join(seen)}")


async def until_ready(data: Path, tendril: str) -> None:
    """Wait until a tendril that another process runs on `data` is ready. Raises TimeoutError."""

    def is_ready() -> bool:
        said = read_report(data, tendril)
        return said is not None and said.state is ProcessState.READY

    await until(is_ready)


async def gone(processes: Sequence[psutil.Process]) -> None:
    """Wait until all processes have ended. Raises AssertionError after PATIENCE seconds.

    Zombies count as ended: a container may lack an init process that reaps orphans.
    """

    def runs(process: psutil.Process) -> bool:
        try:
            return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    try:
        await until(lambda: not any(map(runs, processes)))
    except TimeoutError:
        raise AssertionError(f"left behind: {list(filter(runs, processes))}") from None


def lend_packages(environment: Path) -> None:
    """Make the packages of this environment importable in another one.

    pip sees them there as well and only installs missing ones.
    """
    site = next(environment.glob("lib/python*/site-packages"))
    ours = sysconfig.get_path("purelib")
    # `addsitedir` rather than a path, because it also processes the .pth files of our folder, such
    # as those of editable installations.
    (site / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
