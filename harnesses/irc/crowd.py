"""Whose questions are being answered: nobody may crowd out the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from storage.event import Place

MOST = 5
"""Questions of one person in one place that are answered or wait for it."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in a place, by folded nick."""

    place: Place
    nick: str


class Crowd:
    """The people who wait for answers."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._waiting: Counter[Person] = Counter()
        self._told: set[tuple[Person, str]] = set()

    def full(self, person: Person) -> bool:
        """Whether a person has asked as much as one may at once."""
        return self._waiting[person] >= self._most

    @contextmanager
    def waiting(self, person: Person) -> Iterator[None]:
        """Count a question while it is being answered."""
        self._waiting[person] += 1
        try:
            yield
        finally:
            self._waiting[person] -= 1
            if not self._waiting[person]:
                del self._waiting[person]
                self._told = {entry for entry in self._told if entry[0] != person}

    def once(self, person: Person, text: str) -> bool:
        """Whether to tell a person `text`: once, until nothing of theirs is left to answer."""
        first = (person, text) not in self._told
        self._told.add((person, text))
        return first
