"""Lines of a channel as the models of threads see them: one by itself, and one as a reply."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

MOST_WORDS = 20
"""Beyond that, a line is just long."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Number `n` of the lines that people said; people are numbers of `People`."""

    n: int
    minute: int
    speaker: int
    addressee: int | None
    named: frozenset[int]
    words: frozenset[str]
    length: int  # in words, at most MOST_WORDS
    asks: bool


SAME, ADDRESSED, ANOTHER, CIRCLE, ANYBODY = RELATIONS = range(5)
"""Who said an earlier line: whoever speaks now; whom they address; somebody else although they
address one; one of their circle; anybody."""

NOBODY, SPEAKER, INSIDE, OUTSIDE, NAMES = KINDS = range(5)
"""To whom an earlier line speaks: to nobody; to whoever speaks now; to one of the circle; to
somebody else; or it names whoever speaks now among others."""

MOST_SHARED = 201
"""Beyond that sum, two lines share a great deal."""


@dataclass(frozen=True, slots=True)
class ReplyFeatures:
    """A line, the people its speaker has to do with (`circle`), and how rare the words are that
    it shares with earlier lines (`shared`: sums of squared weights by line, at most
    MOST_SHARED)."""

    line: Utterance
    circle: Set[int]
    shared: Mapping[int, int]

    def relation(self, earlier: Utterance) -> int:
        """Return the speaker's relation to an earlier line, one of RELATIONS."""
        line, by, to = self.line, earlier.speaker, earlier.addressee
        if by == line.speaker:
            return SAME
        if line.addressee is not None:
            return ADDRESSED if by == line.addressee else ANOTHER
        if by in self.circle and (to is None or to == line.speaker or to in self.circle):
            return CIRCLE
        return ANYBODY

    def kind(self, earlier: Utterance) -> int:
        """Return the addressee of an earlier line, one of KINDS."""
        to = earlier.addressee
        if to == self.line.speaker:
            return SPEAKER
        if self.line.speaker in earlier.named:
            return NAMES
        if to is None:
            return NOBODY
        return INSIDE if to in self.circle else OUTSIDE

    def minutes_since(self, earlier: Utterance) -> int:
        """Return the minutes since an earlier line was said."""
        return max(0, self.line.minute - earlier.minute)

    def shares_addressee(self, earlier: Utterance) -> bool:
        """Return if both lines speak to the same person."""
        return self.line.addressee is not None and self.line.addressee == earlier.addressee
