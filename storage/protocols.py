"""The reading half of the log as a protocol, which `ChatLog` implements over SQLite.

Code that only reads asks for this, so that a log in another database can take its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Protocol

from storage.chat_log.event import Event, Place, Scope
from storage.chat_log.query import Query
from storage.chat_log.statistics import ChannelStats, DayStats, HeatMap, PersonStats, Stats
from storage.log import EventContext
from storage.passages.passages import PEOPLE, LineFilter, Passages
from storage.search.models import SearchPage, SearchQuery


class LogReader(Protocol):
    """Reads the log, within the scope that each call names. All raise Unavailable."""

    async def find(self, query: Query, *, newest: bool = True) -> list[Event]:
        """Return the newest (or oldest) events that fit `query`, in order of time either way."""

    async def for_model(self, *queries: Query) -> list[list[Event]]:
        """Return the newest that fit each query, at one moment, without those of people who have
        opted out."""

    async def shown_to_model(self, events: Sequence[Event]) -> list[Event]:
        """Return the `events` that are not by people who have opted out."""

    async def get(self, scope: Scope, event_id: int) -> Event | None:
        """Return an event, if it exists and may be seen."""

    async def context(
        self, scope: Scope, event_id: int, *, before: int, after: int
    ) -> EventContext | None:
        """Return an event with its neighbours on the channel, if it may be seen."""

    async def search(self, search_query: SearchQuery) -> SearchPage:
        """Return a page of the lines that a search finds. Raises BadCursor."""

    async def search_for_model(self, search_query: SearchQuery) -> SearchPage:
        """Search, without what people said who have opted out."""

    async def passages(
        self, question: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Passages:
        """Return the lines that likeliest answer a plain question, best first."""

    async def passages_for_model(
        self, question: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Passages:
        """Retrieve passages, without what people said who have opted out."""

    async def nearest_for_model(
        self, question: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Passages:
        """Return the lines nearest in meaning to a question, without those of people who have
        opted out."""

    async def channels(self, scope: Scope) -> list[ChannelStats]:
        """Return the places in scope, the most recently active first."""

    async def stats(self, query: Query, top: int = 5) -> Stats:
        """Counts of the spoken lines that fit `query`."""

    async def heat_map(self, query: Query) -> HeatMap:
        """Count lines by weekday and hour in UTC."""

    async def days(self, query: Query, zone: tzinfo = UTC) -> list[DayStats]:
        """Return the days of `zone` on which something was said."""

    async def sparklines(
        self, scope: Scope, until: datetime, days: int = 30
    ) -> dict[Place, tuple[int, ...]]:
        """Return lines of each of the last `days` before `until`, per place that was not silent."""

    async def person(self, scope: Scope, nick: str) -> PersonStats | None:
        """Return the statistics of a nick in scope."""
