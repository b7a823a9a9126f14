"""Errors of requests to the agent server, with a `sentence` each that people may read."""

from __future__ import annotations


class ModelError(Exception):
    """The agent server could not answer."""

    sentence = "I cannot think just now; please ask again in a moment."


class Unreachable(ModelError):
    """The agent server does not answer at its address, breaks the connection, or has no model at
    the moment (500, 502, 503)."""

    sentence = "My model is not reachable at the moment; please ask again in a minute."


class Busy(ModelError):
    """The server has no free slot (429); it may have one in `retry_after` seconds."""

    sentence = "I have too many questions at once; please ask again in a minute."

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BudgetSpent(Busy):
    """A daily budget or quota is used up."""

    sentence = "My budget for today is used up; please ask again tomorrow."


class TimedOut(ModelError):
    """The model took longer than allowed."""

    sentence = "That took me too long, so I stopped; please try a shorter question."


class Unsure(ModelError):
    """A small model has answered, but with words that it was not sure of."""

    sentence = "My model is too small for that; ask people here, or search the log."


class ContextTooLong(ModelError):
    """The prompt does not fit the model's context window, even without anything optional."""

    sentence = "That is too long for my model; please ask for less at once."


class SetupError(ModelError):
    """An error that only the operator can fix; the message says how."""

    sentence = "My model is misconfigured; please tell my operator."


class KeyRefused(SetupError):
    """The server refuses our key as missing or wrong (401, 403)."""

    sentence = "My key is rejected; please tell my operator."

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url} refuses our key; make one with `terrarium keys create NAME` and set it as "
            "AGENT_API_KEY ([agent] api_key)"
        )


class BadEngine(SetupError):
    """The server's engine refuses its key, or is not a model server."""


class RequestRejected(ModelError):
    """The server answered with any other error, of HTTP `status`, which a retry does not fix."""

    sentence = "My model's server cannot handle this question; please tell my operator."

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
