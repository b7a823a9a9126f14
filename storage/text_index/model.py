"""The queries of a full-text index, in a form that suits any database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

IndexedLine = tuple[int, str, str]
"""A line to index: its id, its text, and its tags separated by blanks."""

IdOrder = Literal["DESC", "ASC"]


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
    the `order` DESC or ASC the ids are the newest or the oldest, in that order.
    """

    match: WordMatch | None
    parts: Sequence[str]
    limit: int
    order: IdOrder = "DESC"
