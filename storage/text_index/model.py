"""Questions to the index of words, in no database's language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.connection import Connection

IndexedLine = tuple[int, str, str]
"""An id, a text and its tags, apart by blanks."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words of a text in a row; of a `prefix` the last one only begins so."""

    text: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class WordMatch:
    """Lines that have one phrase of each group of `words` and one tag of each group of `tags`, and
    none of `no_words` and `no_tags`. There is at least one group of words."""

    words: tuple[tuple[Phrase, ...], ...]
    tags: tuple[tuple[str, ...], ...] = ()
    no_words: tuple[Phrase, ...] = ()
    no_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IdRange:
    """A range of ids, both ends with it, of one partition of the index."""

    number: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """The newest `limit` lines that have the words of `match` and the `parts` of text, three
    characters or more, in any case; not all of a line that is found need have the parts. Unless
    `ordered` any such lines, in any order, where that is quicker."""

    match: WordMatch | None
    parts: Sequence[str]
    limit: int
    ordered: bool


class TextIndex(Protocol):
    """The index in one kind of database: a partition has a number and may not exist yet."""

    def add(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        """Index lines, in the transaction that stores them."""

    def remove(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        """Take lines out, as they were added."""

    def merge(self, connection: Connection, number: int, *, begin: bool) -> bool:
        """Do a step of rewriting what still holds words of removed lines; True: there is more."""

    def drop(self, connection: Connection, number: int) -> None:
        """Drop a partition."""

    def ids(
        self, connection: Connection, ranges: Sequence[IdRange], wanted: IndexQuery
    ) -> list[int]:
        """Return the ids of lines in `ranges` that may fit, newest first; so are the ranges."""

    def matching(
        self, connection: Connection, id_range: IdRange, match: WordMatch, order: str, limit: int
    ) -> list[int]:
        """Return ids of lines that fit, in `order`: ASC or DESC."""

    def count(self, connection: Connection, number: int, match: WordMatch, most: int) -> int:
        """Count the lines of a partition that fit, `most` at most."""
