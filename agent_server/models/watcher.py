"""A watcher that reloads the table of models when its file changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import structlog

from agent_server.models.pool import EngineFactory, ModelPool, ModelTable
from terrarium.config import Config, ConfigError, load
from terrarium.file_watcher import changes

log = structlog.get_logger()


@asynccontextmanager
async def follow(pool: ModelPool, config: Config, make: EngineFactory) -> AsyncIterator[None]:
    """Within the block, reload the table when the file of `config` changes or on SIGHUP.

    Only `[model]` is read again. An invalid table is logged and changes nothing.
    """
    if config.path is None:
        yield
        return
    following = asyncio.create_task(_follow(pool, config, make, config.path))
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait({following})


async def _follow(pool: ModelPool, config: Config, make: EngineFactory, path: Path) -> None:
    async with aclosing(changes(lambda: [path])) as changed:
        async for _ in changed:
            _reload(pool, config, make, path)


def _reload(pool: ModelPool, config: Config, make: EngineFactory, path: Path) -> None:
    try:
        fresh = load(path, config.data)
        model = {"model": fresh.tables.get("model", {})}
        wanted = replace(config, tables={**config.tables, **model})
        table = ModelTable.from_config(wanted, make, pool.table)
    except ConfigError as error:
        log.warning("routing.kept", reason=str(error))
        return
    pool.set_table(table)
    log.info("routing.changed", models=table.names())
