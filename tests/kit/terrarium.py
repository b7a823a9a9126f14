"""The real `terrarium up` as a child process."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.kit.command import environment_without_settings, gone, line_with
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port

PULLING = 90.0
"""Additional seconds for the first start on a machine, which downloads the model."""


@dataclass(frozen=True, slots=True)
class Up:
    """A running `terrarium up`: its data folder, and the URLs and port of its parts."""

    process: asyncio.subprocess.Process
    data: Path
    server: str
    web: str
    irc_port: int

    def child(self, words: str) -> psutil.Process:
        """Return the descendant whose command line contains `words`. Raises AssertionError."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            if words in " ".join(process.cmdline()):
                return process
        raise AssertionError(f"no process runs {words!r}")

    async def stop(self) -> int:
        """Stop it with SIGINT, as Ctrl-C does, and return its exit status."""
        self.process.send_signal(signal.SIGINT)
        return await self.process.wait()


@asynccontextmanager
async def terrarium_up(data: Path, **environment: str) -> AsyncIterator[Up]:
    """Run `terrarium up` on free ports; yield once it is ready.

    On exit, stops it and asserts that it exits with status 0, and all its descendants have ended.
    """
    ports = {name: str(free_port()) for name in ("SERVER_PORT", "WEB_PORT", "UP_IRC_PORT")}
    # Several threads of an engine would busy-wait for each other (tests/kit/engine.py).
    settings = {**ports, "MODEL_THREADS": "1", **environment}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harnesses.cli", "up", "--data", str(data)),
        env=environment_without_settings() | settings,
        cwd=data,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    descendants: list[psutil.Process] = []
    try:
        await line_with(process.stdout, "ready", PATIENCE + PULLING)
        descendants = psutil.Process(process.pid).children(recursive=True)
        yield Up(
            process,
            data,
            f"http://127.0.0.1:{settings['SERVER_PORT']}",
            f"http://127.0.0.1:{settings['WEB_PORT']}",
            int(settings["UP_IRC_PORT"]),
        )
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()
        await gone(descendants)
