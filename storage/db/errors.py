"""Errors of storage; two more are beside what raises them, `AlreadyRunning` in
`storage.db.process_lock` and `LeaseLost` in `storage.queues.leases`."""

from __future__ import annotations

from pathlib import Path


class StorageError(Exception):
    """A failure of a database; the message says of which one, and what to do about it."""


class Unavailable(StorageError):
    """The database cannot be opened, read or written."""


class ServerAway(Unavailable):
    """PostgreSQL cannot be reached at the moment: it is away, starting, stopping or full."""


class Conflict(Unavailable):
    """A unique constraint was violated, usually by a concurrent transaction that was quicker."""


class Rejected(Unavailable):
    """The database rejects the values that were to be written, and would do so again."""


class UnusableFile(StorageError):
    """The database cannot be used as it is, and retrying does not help."""


class NewerSchema(UnusableFile):
    """The database was written by a newer Terrarium, whose tables this one does not know."""


class OlderSchema(UnusableFile):
    """The database was written by a Terrarium so old that another version has to migrate it."""


class DamagedFile(UnusableFile):
    """The file is damaged, or not a database; `finding` is SQLite's description."""

    def __init__(self, path: Path, finding: str) -> None:
        super().__init__(
            f"{path}: damaged, or not a database ({finding}); stop everything that uses it, and put"
            " a backup in its place (docs/log.md, Damage)"
        )
        self.finding = finding


class BadCursor(StorageError):
    """The cursor of a page was not issued by a search."""
