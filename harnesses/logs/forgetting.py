"""`terrarium logs forget|vacuum`, for whoever keeps the file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harnesses.logs.exporting import require_log
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.db.secure_delete import vacuum
from storage.log import ChatLog
from storage.privacy.audit_log import AuditEntry, AuditLog
from storage.privacy.erasure import Forgotten, NamedPerson, count, forget, other_files
from storage.settings import log_path
from terrarium.config import Config


async def count_of(config: Config, person: NamedPerson) -> int:
    """How many events there are. Raises StorageError."""
    async with _open_database(log_path(config)) as database:
        return await count(ChatLog(database), person)


async def forget_named(config: Config, person: NamedPerson) -> Forgotten:
    """Forget a person everywhere; that it was done stands in the audit, the person does not.

    Raises StorageError.
    """
    path = log_path(config)
    async with _open_database(path) as database:
        others = other_files(config.data, path)
        gone = await forget(database, ChatLog(database), person, others)
        entry = AuditEntry(
            Place(person.network or "", ""), "command line", "forget", f"{gone.events} events"
        )
        await AuditLog(database).add(entry)
    return gone


async def vacuum_log(path: Path) -> None:
    """Write the file anew. Raises StorageError."""
    async with _open_database(path) as database:
        await vacuum(database)


@asynccontextmanager
async def _open_database(path: Path) -> AsyncIterator[Database]:
    require_log(path)
    async with Database.open(path) as database:
        yield database
