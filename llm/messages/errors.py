"""Errors of requests to the agent server.

    ModelError
    ├── Unreachable      nobody answers at the address, the connection broke, or the server says
    │                    that it has no model at the moment (500, 502, 503)
    ├── Busy             the server has no place free (429) for `retry_after` seconds
    │   └── BudgetSpent  a budget or quota of the day is used up
    ├── TimedOut         the model took longer than allowed
    ├── ContextTooLong   the prompt does not fit the model's window
    ├── SetupError       only whoever runs this can mend it; the text is the advice
    │   ├── KeyRefused   our key is missing or wrong (401, 403)
    │   └── BadEngine    the server's engine refuses its key, or is no model server
    └── RequestRejected  any other error answer; `status` is the HTTP status

Their texts are for the log. `sentence` is what a person may read.
"""

from __future__ import annotations


class ModelError(Exception):
    """The agent server could not answer."""

    sentence = "I cannot think just now; please ask again in a moment."


class Unreachable(ModelError):
    """The agent server does not answer at its address, or has no model."""

    sentence = "My model is not reachable at the moment; please ask again in a minute."


class Busy(ModelError):
    """The server has no place free; it may in `retry_after` seconds."""

    sentence = "I have too many questions at once; please ask again in a minute."

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BudgetSpent(Busy):
    """A budget or quota of the day is used up."""

    sentence = "What I may use today is used up; please ask again tomorrow."


class TimedOut(ModelError):
    """The model took longer than allowed."""

    sentence = "That took me too long, so I stopped; please try a shorter question."


class ContextTooLong(ModelError):
    """The prompt does not fit the model's window, however much of the past is left out."""

    sentence = "That is too long for my model; please ask for less at once."


class SetupError(ModelError):
    """Only whoever runs this can mend it; the text is the advice."""

    sentence = "My model is not set up right; please tell whoever runs me."


class KeyRefused(SetupError):
    """The server takes our key for missing or wrong."""

    sentence = "My key is refused; please tell whoever runs me."

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url} refuses our key; make one with `terrarium keys create NAME` and set it as "
            "AGENT_API_KEY ([agent] api_key)"
        )


class BadEngine(SetupError):
    """The server's engine refuses its key, or is no model server."""


class RequestRejected(ModelError):
    """The server answered with an error that asking again does not mend."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
