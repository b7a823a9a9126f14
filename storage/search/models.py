"""Queries and results of a search."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

from storage.chat_log.event import Event, Place
from storage.chat_log.query import Query
from storage.search.query_parser import Mode


class Order(StrEnum):
    """Which hits come first: the best ones of the newest, or simply the newest."""

    RANK = "rank"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """A search for what was said. `text` is in the language of `storage.search.query_parser`;
    `within` narrows further whatever the text says, and its `limit` is the hits of a page; `cursor`
    is the `next_cursor` of the page before; days in the text are days of `zone`."""

    text: str
    within: Query
    mode: Mode = Mode.AND
    order: Order = Order.RANK
    cursor: str | None = None
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True)
class MatchSnippet:
    """The part of a line that shows why it was found. `marks` are the pieces of `text` to
    highlight, as (start, end), in order and apart."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that was found."""

    event: Event
    snippet: MatchSnippet


@dataclass(frozen=True, slots=True)
class Facets:
    """Counts of the newest few hundred hits by value, the most frequent first.

    Months are "2026-03" in UTC, the newest first.
    """

    channels: tuple[tuple[Place, int], ...] = ()
    nicks: tuple[tuple[str, int], ...] = ()
    months: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of hits.

    `count` is how many hits there are, on the first page only; with `more_than_counted` there are
    more, or may be ("1,000+"). `searched_back_to` is the time down to which a hard search came
    before its time was over, None when it came to the end or the page was full; then, and when
    there are more hits, `next_cursor` goes on. `facets` are on the first page.
    """

    hits: tuple[Hit, ...] = ()
    next_cursor: str | None = None
    count: int = 0
    more_than_counted: bool = False
    searched_back_to: datetime | None = None
    facets: Facets = field(default_factory=Facets)
