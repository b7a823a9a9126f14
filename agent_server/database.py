"""Where the agent server's database is, while a process uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.db.address import Address
from storage.db.process_lock import hold_lock
from storage.settings import store_address
from terrarium.config import Config


@contextmanager
def held_address(config: Config) -> Iterator[Address]:
    """Yield the address of the server's database; no command replaces or moves its file meanwhile.

    Raises AlreadyRunning if such a command is at work, and Unavailable if the data folder cannot be
    written.
    """
    address = store_address(config, "server")
    if not isinstance(address, Path):  # with PostgreSQL a replica may have no data folder
        yield address
        return
    with hold_lock(config.data, "server", "terrarium server", shared=True):
        yield address
