"""`terrarium logs forget|vacuum|backup`: maintenance of a log by its operator."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harnesses.logs.new_file import atomic_write
from storage.db.backup import back_up
from storage.db.database import Address, Database
from storage.db.errors import Unavailable
from storage.db.secure_delete import vacuum
from storage.log import ChatLog
from storage.privacy.erasure import Forgotten, NamedPerson, count, forget
from storage.settings import log_address
from terrarium.config import Config


@asynccontextmanager
async def open_log(address: Address) -> AsyncIterator[Database]:
    """Open the database of an existing log; one that cannot be written is opened read-only.

    Raises StorageError, also if there is no log: opening its file would create one.
    """
    can_write = True
    if isinstance(address, Path):
        if not await asyncio.to_thread(address.exists):
            raise Unavailable(f"{address}: there is no log yet; `terrarium up` begins one")
        can_write = await asyncio.to_thread(_can_write, address)
    async with Database.open(address, read_only=not can_write) as database:
        yield database


def _can_write(path: Path) -> bool:
    # The folder as well, in which SQLite creates the files of its write-ahead log.
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


async def count_of(config: Config, person: NamedPerson) -> int:
    """Return the number of a person's events. Raises StorageError."""
    async with open_log(log_address(config)) as database:
        return await count(ChatLog(database), person)


async def forget_named(config: Config, person: NamedPerson) -> Forgotten:
    """Forget a person in all files, and complete earlier forgettings. The audit log gets an entry
    that does not name the person.

    Raises StorageError if it could not begin; what could not be completed is in the result.
    """
    async with open_log(log_address(config)) as database:
        return await forget(database, ChatLog(database), person, config.data, "command line")


async def vacuum_log(address: Address) -> None:
    """Rewrite the database, so that nothing is left of what was removed. Raises StorageError."""
    async with open_log(address) as database:
        await vacuum(database)


def back_up_log(path: Path, target: Path, *, force: bool) -> None:
    """Copy the log, which others may be writing, into `target`. Blocks.

    Raises OperationRefused and Unavailable.
    """
    with atomic_write(target, force=force) as part:
        back_up(path, part)
