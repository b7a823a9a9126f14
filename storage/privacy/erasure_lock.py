"""The lock that lets one process at a time carry out the pending erasures of a log."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from storage.connection import Dialect
from storage.db.database import AsyncConnection, Database
from storage.db.errors import Unavailable

_PATIENCE = 60.0  # seconds to wait for another process
_POLL_INTERVAL = 0.1  # seconds between two attempts to take the lock
_TRY_ADVISORY = (
    "SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' erasures', 0))"
)


@asynccontextmanager
async def erasure_lock(
    database: Database, data: Path, *, patience: float = _PATIENCE
) -> AsyncIterator[None]:
    """Hold the lock on the erasures of the log in `database`.

    With SQLite it is an flock in the folder `data`, which the kernel releases however a process
    ends. With PostgreSQL it is an advisory lock, because the processes may be on several machines;
    the server releases it when the connection ends. Raises Unavailable when another process still
    holds it after `patience` seconds.
    """
    if database.dialect is Dialect.POSTGRES:
        # The transaction only holds the lock: it writes nothing, and has no snapshot that would
        # keep VACUUM from removing rows.
        async with database.transaction(exclusive=False) as connection:
            await _wait(partial(_try_advisory_lock, connection), patience)
            yield
        return
    path = data / "run" / "erasure.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise Unavailable(f"{path}: cannot be opened: {error.strerror}") from error
    with file:  # closing it releases the lock
        await _wait(partial(_try_flock, file.fileno()), patience)
        yield


async def _wait(try_lock: Callable[[], Awaitable[bool]], patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            while not await try_lock():  # noqa: ASYNC110
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError as error:
        raise Unavailable("another process is still carrying out erasures") from error


async def _try_advisory_lock(connection: AsyncConnection) -> bool:
    async with connection.execute(_TRY_ADVISORY) as cursor:
        return bool((await cursor.fetchone())[0])


async def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
