"""Which change is worth a signal: the Weber-Fechner law.

What differs by a share of what was, is noticed; the tired notice only more. A value is held
against the one that was *reported* last, so that a slow drift is noticed too, once it has summed
up.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threshold:
    """`base` is the share that the wide awake notice, `influence` how much more it takes to
    rouse the tired, `most` the share that everybody notices. Less than `min_abs` is nothing."""

    base: float = 0.10
    min_abs: float = 0.01
    most: float = 0.5
    influence: float = 0.5

    def significant(self, value: float, emitted: float, alertness: float) -> bool:
        """Whether `value` differs from the last `emitted` one, for an `alertness` of 0 to 1."""
        distance = abs(value - emitted)
        if distance < self.min_abs:
            return False
        share = min(self.base * (1 + self.influence * (1 - alertness)), self.most)
        return emitted == 0 or distance / abs(emitted) >= share


WEBER_FECHNER = Threshold()
"""What counts where nothing else is said."""
