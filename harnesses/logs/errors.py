"""The errors of the `terrarium logs` commands.

TendrilError
└── LogsError
    ├── UnrecognisedLog     a file cannot be imported
    └── OperationRefused    a command is not carried out, and the message says why
"""

from __future__ import annotations

from harnesses.core.errors import TendrilError


class LogsError(TendrilError):
    """A `terrarium logs` command cannot do what was asked."""


class UnrecognisedLog(LogsError):
    """The file cannot be imported; the message says what is missing."""


class OperationRefused(LogsError):
    """A command is not carried out; the message says why and what to do."""
