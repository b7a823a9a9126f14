"""The errors of scheduled jobs.

CronError
├── ModelUnavailable  the model gave no answer to a run of a job
└── Undeliverable     the text of a run could not be delivered
"""

from __future__ import annotations


class CronError(Exception):
    """A step of a scheduled job has failed; the message is for the log."""


class ModelUnavailable(CronError):
    """The model gave no answer to a run of a job."""


class Undeliverable(CronError):
    """The text of a run could not be delivered."""
