"""Errors of a transfer.

TransferError          (a StorageError)
├── TransferRefused    something has to be done first; nothing was changed
└── NotTheSame         what arrived is not what was sent
"""

from __future__ import annotations

from storage.db.errors import StorageError


class TransferError(StorageError):
    """A store could not be moved; the message says what to do."""


class TransferRefused(TransferError):
    """The transfer cannot begin or go on before somebody has done something."""


class NotTheSame(TransferError):
    """A table has other rows in the target than in the source."""
