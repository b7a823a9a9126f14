"""Errors of storage.

StorageError
├── Unavailable   the file cannot be opened or written
├── NewerSchema   a newer Terrarium has written the file
└── BadCursor     a search was asked to go on from where it never was
"""

from __future__ import annotations


class StorageError(Exception):
    """Something is wrong with a database file; the message says which and what to do."""


class Unavailable(StorageError):
    """The file cannot be opened or written."""


class NewerSchema(StorageError):
    """The file was written by a newer Terrarium; this one does not know its tables."""


class BadCursor(StorageError):
    """The cursor of a page was not given away by a search."""
