"""What can go wrong with a scheduled job.

CronError
├── ModelUnavailable       the model could not be asked, however often
└── Undeliverable  the text could not be handed over
"""

from __future__ import annotations


class CronError(Exception):
    """A job could not be done; the message is for the log."""


class ModelUnavailable(CronError):
    """The model could not be asked, however often."""


class Undeliverable(CronError):
    """The text could not be handed over where it belongs."""
