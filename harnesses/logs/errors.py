"""What can go wrong with log files.

HarnessError
└── LogsError
    ├── NotALog    a file cannot be imported
    └── Refused    what was asked is not done, and the message says why
"""

from __future__ import annotations

from harnesses.core.errors import HarnessError


class LogsError(HarnessError):
    """A `terrarium logs` command cannot do what was asked."""


class NotALog(LogsError):
    """The file cannot be imported; the message says what is missing."""


class Refused(LogsError):
    """What was asked is not done; the message says why and what to do."""
