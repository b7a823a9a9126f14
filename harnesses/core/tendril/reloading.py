"""A tendril follows its files while it runs: configuration, personas, skills."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import structlog

from terrarium.config import ConfigError
from terrarium.file_watcher import Files, changes

_log = structlog.get_logger()


async def follow(files: Files, reload: Callable[[], str]) -> None:
    """Call `reload` when one of the files changes or SIGHUP comes, for ever. What is wrong changes
    nothing, and the log says why."""
    async with aclosing(changes(files)) as changed:
        async for _ in changed:
            try:
                _log.info("config.changed", outcome=reload())
            except ConfigError as error:
                _log.warning("config.kept", reason=str(error))
