"""Errors of a transfer.

TransferError          (a StorageError)
├── TransferRefused    a person has to do something first; nothing was changed
└── NotTheSame         target and source differ after copying
"""

from __future__ import annotations

from storage.db.errors import StorageError


class TransferError(StorageError):
    """A store could not be moved; the message says what to do about it."""


class TransferRefused(TransferError):
    """The transfer cannot begin or continue until a person has done something."""


class NotTheSame(TransferError):
    """A table has different rows in the target and in the source."""
