"""Servers that are installed programs, run on loopback while a test lasts."""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE


def installed(name: str) -> str:
    """Return the path of an installed program; skip the test if there is none."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed (as root: python -m tests.kit.system)")
    return found


@asynccontextmanager
async def running(
    *command: str, folder: Path, port: int | None = None, user: str | None = None
) -> AsyncIterator[Process]:
    """Run a program, whose output goes to a file in `folder`; kill it on exit.

    With a loopback `port`, waits until it accepts connections there. Raises AssertionError with its
    output if it does not within PATIENCE seconds.
    """
    output = folder / "output"
    with output.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=sink, stderr=sink, user=user
        )
    try:
        if port is not None:
            try:
                await accepting(port, process)
            except (TimeoutError, ProcessLookupError):
                said = output.read_text(errors="replace")[-2000:]
                raise AssertionError(f"{command[0]} did not start: {said}") from None
        yield process
    finally:
        await kill(process)


async def accepting(port: int, process: Process | None = None) -> None:
    """Wait until a loopback port accepts connections.

    Raises TimeoutError, and ProcessLookupError if `process` ends before.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return await writer.wait_closed()
            if process and process.returncode is not None:
                raise ProcessLookupError
            await asyncio.sleep(0.02)  # polled: another process announces nothing


async def kill(process: Process) -> None:
    """End a process, unless it has ended, as a crash would."""
    if process.returncode is None:
        process.kill()
    await process.wait()
