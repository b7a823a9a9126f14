"""Errors of storage.

StorageError
├── Unavailable       the database cannot be opened, read or written
│   └── Conflict      another transaction has taken what has to be unique
├── UnusableFile      somebody has to do something first: to try again is no use
│   ├── NewerSchema   a newer Terrarium has written the database
│   └── DamagedFile   the file is damaged, or no database
├── LeaseLost         (storage/queues/leases.py) another process does the work now
└── BadCursor         a search was asked to go on from where it never was
"""

from __future__ import annotations

from pathlib import Path


class StorageError(Exception):
    """Something is wrong with a database; the message says which and what to do."""


class Unavailable(StorageError):
    """The database cannot be opened, read or written."""


class Conflict(Unavailable):
    """Another transaction has taken what has to be unique, in the same moment."""


class UnusableFile(StorageError):
    """The file cannot be used as it is, and will not get better by itself."""


class NewerSchema(UnusableFile):
    """The file was written by a newer Terrarium; this one does not know its tables."""


class DamagedFile(UnusableFile):
    """The file is damaged, or something else than a database; `finding` is what SQLite says."""

    def __init__(self, path: Path, finding: str) -> None:
        super().__init__(
            f"{path}: damaged, or not a database ({finding}); stop everything that uses it, and put"
            " a backup in its place (docs/log.md, Damage)"
        )
        self.finding = finding


class BadCursor(StorageError):
    """The cursor of a page was not given away by a search."""
