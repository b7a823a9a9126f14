"""A cheap check whether a database may have been written, for those who poll it."""

from __future__ import annotations

import time
from pathlib import Path

from storage.db.database import Database
from terrarium.file_watcher import file_stamp

_MAX_WAIT = 5.0
"""Seconds after which the answer is yes in any case: the file times of two commits within one tick
of the clock are equal."""


class ChangeWatch:
    """Tells whether any process may have written to a database since the last check.

    With SQLite the times of its files tell, which takes microseconds, while a query takes a thread
    and a hundred times as long. With PostgreSQL the answer is always yes.
    """

    def __init__(self, database: Database) -> None:
        address = database.address
        self._files: tuple[Path, ...] = ()
        if isinstance(address, Path):
            self._files = (address, address.with_name(f"{address.name}-wal"))
        self._seen: object = None
        self._time = 0.0

    def may_have_changed(self) -> bool:
        """Return False if nothing was written since the last True.

        Read the database after this call: what is written in between is seen by the next one.
        """
        stamp, now = tuple(map(file_stamp, self._files)), time.monotonic()
        if self._files and stamp == self._seen and now - self._time < _MAX_WAIT:
            return False
        self._seen, self._time = stamp, now
        return True
