"""The table of models follows its file while the server runs."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import structlog

from agent_server.mind import Mind
from agent_server.routing import Make, Routes
from storage.config import Config, ConfigError, load

log = structlog.get_logger()

LOOK = 1.0
"""Seconds between looks at the file."""


@asynccontextmanager
async def follow(mind: Mind, config: Config, make: Make) -> AsyncIterator[None]:
    """Route anew when the file of `config` changes or SIGHUP comes, while the block runs.

    Only `[model]` is read again. A table that is wrong changes nothing, and the log says why.
    """
    if config.path is None:
        yield
        return
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Signals reach the main thread only; elsewhere the file's time has to do.
    main = threading.current_thread() is threading.main_thread()
    if main:
        loop.add_signal_handler(signal.SIGHUP, asked.set)
    following = asyncio.create_task(_follow(mind, config, make, config.path, asked))
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait({following})
        if main:
            loop.remove_signal_handler(signal.SIGHUP)


async def _follow(mind: Mind, config: Config, make: Make, path: Path, asked: asyncio.Event) -> None:
    seen = _stamp(path)
    while True:
        try:
            async with asyncio.timeout(LOOK):
                await asked.wait()
        except TimeoutError:
            if _stamp(path) == seen:
                continue
        asked.clear()
        seen = _stamp(path)
        _reload(mind, config, make, path)


def _reload(mind: Mind, config: Config, make: Make, path: Path) -> None:
    try:
        fresh = load(path, config.data)
        model = {"model": fresh.tables.get("model", {})}
        wanted = replace(config, tables={**config.tables, **model})
        routes = Routes.of(wanted, make, mind.routes)
    except ConfigError as error:
        log.warning("routing.kept", reason=str(error))
        return
    mind.change(routes)
    log.info("routing.changed", models=routes.names())


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes when the file does; None while an editor has it away."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
