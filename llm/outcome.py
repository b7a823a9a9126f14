"""How a turn ended."""

from __future__ import annotations

from dataclasses import dataclass

from llm.message import Message, Status, Usage


@dataclass(frozen=True, slots=True)
class Deferral:
    """What the model wants to look at again: a signal, after some hours, and why."""

    signal: str
    hours: float
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer (empty: the model wants to say nothing), the messages that memory keeps, the cost.

    `forced` tells that the model was made to answer without tools, `status` how it is with the
    conversation, `deferral` that it is to be looked at later, `model` who answered when it was not
    who was asked.
    """

    text: str
    messages: tuple[Message, ...]
    usage: Usage
    iterations: int
    forced: bool
    status: Status | None = None
    deferral: Deferral | None = None
    model: str = ""
