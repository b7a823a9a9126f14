"""A cheap look at whether a database may have been written, for those who would ask it often."""

from __future__ import annotations

import time
from pathlib import Path

from storage.db.database import Database
from terrarium.file_watcher import file_stamp

_SURELY = 5.0
"""Seconds after which the answer is yes all the same: two commits within a tick of the clock of
files can look like one."""


class ChangeWatch:
    """Tells if a database may have been written since it was asked last, whoever did it.

    Of SQLite it looks at the files, which takes microseconds where a query takes a thread and a
    hundred times as long. Of PostgreSQL it knows nothing, and says yes.
    """

    def __init__(self, database: Database) -> None:
        address = database.address
        self._files: tuple[Path, ...] = ()
        if isinstance(address, Path):
            self._files = (address, address.with_name(f"{address.name}-wal"))
        self._seen: object = None
        self._time = 0.0

    def may_have_changed(self) -> bool:
        """Return False if nothing was written since the last True. Read the database after it."""
        stamp, now = tuple(map(file_stamp, self._files)), time.monotonic()
        if self._files and stamp == self._seen and now - self._time < _SURELY:
            return False
        self._seen, self._time = stamp, now
        return True
