"""The log as one viewer may read it: no page and no endpoint names a scope of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

import structlog
from fastapi import Depends, HTTPException

from harnesses.web.app_state import AppStateDep, ViewerDep
from harnesses.web.change_notifier import LogChangeNotifier
from harnesses.web.params import InChannel, Nick, Recently
from llm.messages.errors import ModelError
from llm.tools.semantic_search import SemanticIndex
from storage.chat_log.event import SPOKEN, Event, Place, Scope
from storage.chat_log.query import Query
from storage.chat_log.statistics import ChannelStats, DayStats, HeatMap, PersonStats, Stats
from storage.db.errors import BadCursor, StorageError
from storage.log import ChatLog, EventContext
from storage.search.models import SearchPage, SearchQuery

_log = structlog.get_logger()
_STEP = 1000  # events read at once where all are wanted


@dataclass(frozen=True, slots=True)
class LogAccess:
    """Reads `log` within `scope`; every `Query` that it is given is confined to that.

    `is_open` returns False when the viewer's login has ended, for what goes on after its request.
    """

    log: ChatLog
    notifier: LogChangeNotifier
    scope: Scope
    is_open: Callable[[], Awaitable[bool]]
    semantic_index: SemanticIndex | None = None

    def query(self, place: Place | None = None) -> Query:
        """Return a query for everything that may be seen, or for all of one channel."""
        if place is None:
            return Query(scope=self.scope)
        return Query(scope=self.scope, network=place.network, channel=place.channel)

    async def channels(self) -> list[ChannelStats]:
        """Return the channels, the most recently active first."""
        return await self.log.channels(self.scope)

    async def get(self, event_id: int) -> Event | None:
        """Return an event, if it exists and may be seen."""
        return await self.log.get(self.scope, event_id)

    async def find_place(self, place: Place) -> Place | None:
        """Return a channel as the log writes it, if there is anything of it that may be seen."""
        found = await self._find(self.query(place), 1)
        return Place(found[0].network, found[0].channel) if found else None

    async def page(
        self, query: Query, limit: int, *, newest: bool = True
    ) -> tuple[list[Event], bool]:
        """Return at most `limit` events in order of time, and True if more fit."""
        found = await self._find(query, limit + 1, newest=newest)
        if len(found) <= limit:
            return found, False
        return (found[1:] if newest else found[:-1]), True

    async def iterate(self, query: Query) -> AsyncIterator[Event]:
        """Every event that fits, in order, read in steps: however many, memory stays small."""
        found = await self._find(query, _STEP, newest=False)
        while found:
            for event in found:
                yield event
            if len(found) < _STEP:
                return
            found = await self._find(replace(query, after_id=found[-1].id), _STEP, newest=False)

    async def context(self, event_id: int, before: int, after: int) -> EventContext | None:
        """Return an event with those just before and after it on its channel, if it may be seen."""
        return await self.log.context(self.scope, event_id, before=before, after=after)

    async def last(self, place: Place) -> Event | None:
        """Return the newest line that was said on a channel."""
        found = await self._find(replace(self.query(place), types=SPOKEN), 1)
        return found[0] if found else None

    async def last_before(self, place: Place, time: datetime) -> Event | None:
        """Return the last event of a channel before a time."""
        found = await self._find(replace(self.query(place), until=time), 1)
        return found[0] if found else None

    async def first_from(self, place: Place, time: datetime) -> Event | None:
        """Return the first event of a channel at a time or after it."""
        found = await self._find(replace(self.query(place), since=time), 1, newest=False)
        return found[0] if found else None

    async def newest_id(self) -> int:
        """Return the id of the event that came last, 0 in an empty log."""
        if arrived := await self.log.newest_arrival(self._confine(self.query())):
            return arrived
        found = await self._find(self.query(), 1)
        return found[0].id if found else 0

    async def stats(self, query: Query, top: int) -> Stats:
        """Return totals of the spoken lines that fit."""
        return await self.log.stats(self._confine(query), top)

    async def heat_map(self, query: Query) -> HeatMap:
        """Count lines on the query's channels by weekday and hour in UTC."""
        return await self.log.heat_map(self._confine(query))

    async def days(self, query: Query, zone: ZoneInfo) -> list[DayStats]:
        """Return the days of a zone with lines on the query's channels, from `since` to `until`."""
        return await self.log.days(self._confine(query), zone)

    async def sparklines(self, days: int) -> dict[Place, tuple[int, ...]]:
        """Return lines of each of the last days, per channel that was not silent."""
        return await self.log.sparklines(self.scope, datetime.now(UTC), days)

    async def person(self, nick: str) -> PersonStats | None:
        """Return the statistics of a nick, None if it never spoke where this viewer may read."""
        return await self.log.person(self.scope, nick)

    async def search(self, search_query: SearchQuery) -> SearchPage:
        """Return a page of what a search finds. Raises HTTPException for a cursor that is none."""
        try:
            return await self.log.search(
                replace(search_query, within=self._confine(search_query.within))
            )
        except BadCursor as error:
            raise HTTPException(422, f"cursor: {error}") from error

    async def near(self, text: str, within: Query) -> SearchPage:
        """Return the lines nearest in meaning, on one page. Raises HTTPException where that cannot
        be had, and says why."""
        if self.semantic_index is None:
            raise HTTPException(
                422,
                "mode: lines are not indexed by meaning here; whoever runs this site can set"
                " STORAGE_SEMANTIC=true and install terrarium[semantic]",
            )
        try:
            return await self.semantic_index.search(text, self._confine(within))
        except (ModelError, StorageError) as error:
            _log.warning("web.not_near", reason=type(error).__name__, error=str(error))
            raise HTTPException(503, "The index of meanings cannot be asked now.") from error

    def follow(self, query: Query) -> AsyncIterator[Event]:
        """The events after the query's `after_id` as they come, until the server stops or the
        viewer's login has ended."""
        return self.notifier.events(self.log, self._confine(query), self.is_open)

    async def _find(self, query: Query, limit: int, *, newest: bool = True) -> list[Event]:
        return await self.log.find(replace(self._confine(query), limit=limit), newest=newest)

    def _confine(self, query: Query) -> Query:
        return replace(query, scope=self.scope)


def _reader(state: AppStateDep, viewer: ViewerDep) -> LogAccess:
    async def is_open() -> bool:
        login = viewer.login
        return not login or await state.web_logins.proof_of(login) is not None

    return LogAccess(state.log, state.notifier, viewer.scope, is_open, state.semantic_index)


LogAccessDep = Annotated[LogAccess, Depends(_reader)]


def _channel_query(reader: LogAccessDep, channel: InChannel) -> Query:
    return reader.query().in_channel(channel)


ChannelQuery = Annotated[Query, Depends(_channel_query)]
"""All that may be seen of the channel that a request names, or of all channels."""


def _recent_query(query: ChannelQuery, period: Recently, nick: Nick = None) -> Query:
    return replace(query, nick=nick, since=period.since, until=period.until)


RecentQuery = Annotated[Query, Depends(_recent_query)]
"""The same of one nick and within `since`, `until` and `hours`, where a request names them."""
