"""The errors of scheduled jobs.

CronError
├── ModelUnavailable  the model gave no answer, however often it was asked
└── Undeliverable     the text could not be handed over
"""

from __future__ import annotations


class CronError(Exception):
    """A job could not be done; the message is for the log."""


class ModelUnavailable(CronError):
    """The model gave no answer, however often it was asked."""


class Undeliverable(CronError):
    """The text could not be delivered."""
