"""The query and the results of a search."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

from storage.chat_log.event import Event, Place
from storage.chat_log.event_table import Query
from storage.search.query_parser import Mode


class Order(StrEnum):
    """The order of hits: by rank among the newest ones, or by time, newest first."""

    RANK = "rank"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """A search for lines that people said.

    `text` is in the language of `storage.search.query_parser`; its dates are in `zone`. `within`
    restricts the hits whatever the text says; its `limit` is the size of a page. `cursor` is the
    `next_cursor` of the previous page.
    """

    text: str
    within: Query
    mode: Mode = Mode.AND
    order: Order = Order.RANK
    cursor: str | None = None
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True)
class MatchSnippet:
    """The part of a line that shows why it was found; `marks` are ranges of `text`, in order."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a search has found."""

    event: Event
    snippet: MatchSnippet


@dataclass(frozen=True, slots=True)
class Facets:
    """Counts of the hits by value, the most frequent first; months are "2026-03" in UTC, newest
    first."""

    channels: tuple[tuple[Place, int], ...] = ()
    nicks: tuple[tuple[str, int], ...] = ()
    months: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of hits.

    `count` is the number of hits, on the first page only; with `more_than_counted` there are, or
    may be, more ("1,000+"). `searched_back_to` is set if the time limit ended the search before the
    page was full: older lines have not been searched. Then, and if there are more hits, the search
    continues at `next_cursor`. `facets` of the counted hits are on the first page only.
    `is_understood` is False if the text has nothing that can be searched for; `notes` are sentences
    about what looks like a filter and is none.
    """

    hits: tuple[Hit, ...] = ()
    next_cursor: str | None = None
    count: int = 0
    more_than_counted: bool = False
    searched_back_to: datetime | None = None
    facets: Facets = field(default_factory=Facets)
    is_understood: bool = True
    notes: tuple[str, ...] = ()
