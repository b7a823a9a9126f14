"""Opening of the log, and writing of files, for the `terrarium logs` commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from harnesses.core.errors import TendrilError
from storage.chat_log.event_table import Query
from storage.chat_log.statistics import Stats, stats
from storage.db.database import Address, Database
from storage.db.errors import Unavailable
from storage.db.private_files import sync

_EXISTS = "{} already exists; --force replaces it"
_PART = ".part"  # suffix of a file that is being written


@asynccontextmanager
async def open_log(address: Address) -> AsyncIterator[Database]:
    """Open the database of an existing log; one that cannot be written is opened read-only. Raises
    StorageError, also if there is no log: opening its file would create one."""
    can_write = True
    if isinstance(address, Path):
        if not await asyncio.to_thread(address.exists):
            raise Unavailable(f"{address}: there is no log yet; `terrarium up` creates one")
        # The folder as well, in which SQLite creates the files of its write-ahead log.
        can_write = os.access(address, os.W_OK) and os.access(address.parent, os.W_OK)
    async with Database.open(address, read_only=not can_write) as database:
        yield database


@contextmanager
def atomic_write(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield an empty file of mode 600, which is moved to `path` at the end unless the block raises:
    the file at `path` is complete or absent.

    Raises TendrilError if the file cannot be written, or exists and is not to be replaced by
    `force`.
    """
    if path.exists() and not force:
        raise TendrilError(_EXISTS.format(path))
    part = path.with_name(path.name + _PART)
    # O_EXCL follows no symbolic link that somebody else may have put there, and the mode is set
    # before there is anything to read.
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise TendrilError(f"{path} cannot be written: {error.strerror}") from error
    try:
        yield part
        sync(part)  # before the move: a crash after it must not leave an empty file
        if not force:
            # Reserve the name: another process may have taken it since the look above.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        part.replace(path)
    except FileExistsError as error:
        raise TendrilError(_EXISTS.format(path)) from error
    except OSError as error:
        raise TendrilError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


async def totals(address: Address, query: Query) -> Stats:
    """Return totals of the lines in the log at `address` that match, with the ten most talkative
    nicks. Raises StorageError."""
    async with open_log(address) as database:
        return await database.read(stats, query, top=10)
