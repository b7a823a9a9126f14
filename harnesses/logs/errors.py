"""What can go wrong with log files.

TendrilError
└── LogsError
    ├── UnrecognisedLog    a file cannot be imported
    └── Refused    what was asked is not done, and the message says why
"""

from __future__ import annotations

from harnesses.core.errors import TendrilError


class LogsError(TendrilError):
    """A `terrarium logs` command cannot do what was asked."""


class UnrecognisedLog(LogsError):
    """The file cannot be imported; the message says what is missing."""


class OperationRefused(LogsError):
    """What was asked is not done; the message says why and what to do."""
