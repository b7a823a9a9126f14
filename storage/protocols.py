"""The protocol of read access to the chat log, implemented by `storage.log.ChatLog`.

Code that only reads depends on this protocol, so that another implementation can replace `ChatLog`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Protocol

from storage.chat_log.event import Event, Place, Scope
from storage.chat_log.query import Query
from storage.chat_log.statistics import ChannelStats, DayStats, HeatMap, PersonStats, Stats
from storage.log import EventContext
from storage.passages.passages import PEOPLE, LineFilter, Mentions, Passages
from storage.search.models import SearchPage, SearchQuery


class LogReader(Protocol):
    """Read access to the log, limited by the scope that each query carries.

    Every method raises Unavailable when the database cannot be read.
    """

    async def find(self, query: Query, *, newest: bool = True) -> list[Event]:
        """Return the newest (or oldest) events that match, in chronological order either way."""

    async def for_model(self, *queries: Query) -> list[list[Event]]:
        """Return the newest events that match each query, all from one snapshot, without events by
        or about people who have opted out."""

    async def shown_to_model(self, events: Sequence[Event]) -> list[Event]:
        """Return those `events` that are neither by nor about people who have opted out."""

    async def get(self, scope: Scope, event_id: int) -> Event | None:
        """Return an event, or None if it does not exist or is outside `scope`."""

    async def context(
        self, scope: Scope, event_id: int, *, before: int, after: int
    ) -> EventContext | None:
        """Return an event with at most `before` and `after` neighbours on its channel; None if it
        does not exist or is outside `scope`."""

    async def search(self, search_query: SearchQuery) -> SearchPage:
        """Return one page of search results. Raises BadCursor."""

    async def search_for_model(self, search_query: SearchQuery) -> SearchPage:
        """Return one page of search results, without lines of people who have opted out."""

    async def passages_for_model(
        self,
        question: str,
        within: Query,
        line_filter: LineFilter = PEOPLE,
        vector: Sequence[float] | None = None,
    ) -> Passages:
        """Return the lines most likely to answer a question in plain words, best first, without
        lines of people who have opted out. `vector` is the question's embedding."""

    async def mentions_for_model(
        self, text: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Mentions:
        """Return and count the lines with any word of a text, without those of people who have
        opted out."""

    async def near_for_model(self, vector: Sequence[float], within: Query) -> SearchPage:
        """Return the newer lines of people that are nearest in meaning to a text with this
        embedding, best first, without those of people who have opted out."""

    async def channels(self, scope: Scope) -> list[ChannelStats]:
        """Return the places in scope, the most recently active first."""

    async def stats(self, query: Query, top: int = 5) -> Stats:
        """Return totals of the spoken lines that match, and the `top` most talkative nicks."""

    async def heat_map(self, query: Query) -> HeatMap:
        """Count lines by weekday and hour in UTC."""

    async def days(self, query: Query, zone: tzinfo = UTC) -> list[DayStats]:
        """Return the days of `zone` on which something was said."""

    async def sparklines(
        self, scope: Scope, until: datetime, days: int = 30
    ) -> dict[Place, tuple[int, ...]]:
        """Count the lines of each of the last `days` before `until`, per place; silent places are
        left out."""

    async def person(self, scope: Scope, nick: str) -> PersonStats | None:
        """Return the statistics of a nick in scope."""
