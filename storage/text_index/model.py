"""The interface of a full-text index, and its queries in a form that suits any database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.connection import Connection

IndexedLine = tuple[int, str, str]
"""A line to index: its id, its text, and its tags separated by blanks."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Consecutive words of a text; with `prefix` the last one may be the beginning of a word."""

    text: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class WordMatch:
    """A boolean condition on the words and tags of a line.

    The line must have at least one phrase of each group in `words` and one tag of each group in
    `tags`, and none of `no_words` and `no_tags`. There is at least one group of words.
    """

    words: tuple[tuple[Phrase, ...], ...]
    tags: tuple[tuple[str, ...], ...] = ()
    no_words: tuple[Phrase, ...] = ()
    no_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IdRange:
    """A range of ids, inclusive at both ends, within the partition `number`."""

    number: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A query for the ids of at most `limit` lines, as candidates.

    The lines satisfy `match`, if there is one, and contain the `parts`: substrings of three or more
    characters, whose case is ignored. An index may also return lines without the parts. With
    `ordered` the ids are the newest, newest first; else any, in any order, if that is faster.
    """

    match: WordMatch | None
    parts: Sequence[str]
    limit: int
    ordered: bool


class TextIndex(Protocol):
    """A full-text index in one kind of database. Its partitions are numbered."""

    def add(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        """Index lines in the transaction that stores them, creating the partition if necessary."""

    def remove(self, connection: Connection, number: int, lines: Sequence[IndexedLine]) -> None:
        """Remove lines, whose text and tags must be exactly those that were added."""

    def merge(self, connection: Connection, number: int, *, begin: bool) -> bool:
        """Rewrite some of the pages that still hold words of removed lines; return True while there
        are more. The first of several steps says `begin`."""

    def drop(self, connection: Connection, number: int) -> None:
        """Drop a partition."""

    def ids(
        self, connection: Connection, ranges: Sequence[IdRange], wanted: IndexQuery
    ) -> list[int]:
        """Return at most `wanted.limit` candidate ids from `ranges`, which are newest first."""

    def matching(
        self, connection: Connection, id_range: IdRange, match: WordMatch, order: str, limit: int
    ) -> list[int]:
        """Return the first `limit` ids of matching lines, in `order`: ASC or DESC."""

    def count(self, connection: Connection, number: int, match: WordMatch, most: int) -> int:
        """Count the matching lines of a partition, up to `most`."""
