"""What has been dealt with, by kind and channel, so that it does not wake us again at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from llm.attention.trigger_kinds import TriggerKind
from storage.chat_log.event import Place

GROWN = 0.25
"""How much a value must have grown since it was put off to count before its time."""


class AcknowledgementState(StrEnum):
    """HANDLED: until somebody speaks there again. DEFERRED: until a time, or until it has grown.
    SUPPRESSED: until it is lifted."""

    HANDLED = "handled"
    DEFERRED = "deferred"
    SUPPRESSED = "suppressed"


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """How one thing was dealt with, when its value was `value`."""

    state: AcknowledgementState
    value: float = 0.0
    until: datetime | None = None

    def blocks(self, value: float, now: datetime) -> bool:
        """Whether it keeps the thing, which has grown to `value`, from waking us."""
        if self.state is not AcknowledgementState.DEFERRED or self.until is None:
            return True
        return now < self.until and value < self.value + GROWN


class Acknowledgements:
    """One for each kind and channel."""

    def __init__(self) -> None:
        self._known: dict[Place, dict[TriggerKind, Acknowledgement]] = {}

    def put(self, kind: TriggerKind, place: Place, acknowledgement: Acknowledgement) -> None:
        """Remember how something was dealt with."""
        self._known.setdefault(place, {})[kind] = acknowledgement

    def blocks(self, kind: TriggerKind, place: Place, value: float, now: datetime) -> bool:
        """Whether something must not wake us now; one whose time has passed is dropped."""
        known = self._known.get(place, {})
        if kind not in known:
            return False
        if known[kind].blocks(value, now):
            return True
        del known[kind]
        return False

    def on_message(self, place: Place) -> None:
        """Somebody has spoken there: what was handled on that channel, and on no other, may come
        up again. What was put off stays put off."""
        known = self._known.get(place)
        if known:
            self._known[place] = {
                k: v for k, v in known.items() if v.state is not AcknowledgementState.HANDLED
            }

    def lift(self, place: Place) -> None:
        """Nothing is suppressed there any more."""
        known = self._known.get(place, {})
        self._known[place] = {
            k: v for k, v in known.items() if v.state is not AcknowledgementState.SUPPRESSED
        }
