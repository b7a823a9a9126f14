"""Access to the log for one viewer, so that no page and no endpoint chooses a scope itself."""

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
from harnesses.web.params import ChannelNameDep, Nick, RecentRangeDep
from llm.retrieval import Found, Retrieval
from storage.chat_log.event import SPOKEN, Event, Place, Scope
from storage.chat_log.event_table import Query
from storage.chat_log.statistics import ChannelStats, DayStats, HeatMap, PersonStats, Stats
from storage.db.errors import BadCursor, StorageError
from storage.log import ChatLog, EventContext
from storage.search.models import SearchPage, SearchQuery

_log = structlog.get_logger()
_BATCH_SIZE = 1000  # events per read of `LogAccess.iterate`


@dataclass(frozen=True, slots=True)
class LogAccess:
    """Read access to `log` confined to `scope`, which replaces the scope of every given `Query`.

    `is_open` returns False once the viewer's login has ended, which a stream has to notice by
    itself, because its request was authorized long ago.
    """

    log: ChatLog
    notifier: LogChangeNotifier
    scope: Scope
    is_open: Callable[[], Awaitable[bool]]
    retrieval: Retrieval

    def query(self, place: Place | None = None) -> Query:
        """Return a query for all events in scope, or for those of one channel."""
        if place is None:
            return Query(scope=self.scope)
        return Query(scope=self.scope, network=place.network, channel=place.channel)

    async def channels(self) -> list[ChannelStats]:
        """Return the channels in scope, the most recently active first."""
        return await self.log.channels(self.scope)

    async def get(self, event_id: int) -> Event | None:
        """Return an event, None if it does not exist or is out of scope."""
        return await self.log.get(self.scope, event_id)

    async def find_place(self, place: Place) -> Place | None:
        """Return a channel with the spelling of the log, None if it has no event in scope."""
        found = await self._find(self.query(place), 1)
        return Place(found[0].network, found[0].channel) if found else None

    async def page(
        self, query: Query, limit: int, *, newest: bool = True
    ) -> tuple[list[Event], bool]:
        """Return the newest (or oldest) `limit` events that match, in chronological order, and
        whether there are more."""
        found = await self._find(query, limit + 1, newest=newest)
        if len(found) <= limit:
            return found, False
        # Drop the extra event, which is the one farthest from the end that was asked for.
        return (found[1:] if newest else found[:-1]), True

    async def iterate(self, query: Query) -> AsyncIterator[Event]:
        """Yield all events that match, oldest first; they are read in batches, in bounded
        memory."""
        found = await self._find(query, _BATCH_SIZE, newest=False)
        while found:
            for event in found:
                yield event
            if len(found) < _BATCH_SIZE:
                return
            found = await self._find(
                replace(query, after_id=found[-1].id), _BATCH_SIZE, newest=False
            )

    async def context(self, event_id: int, before: int, after: int) -> EventContext | None:
        """Return an event with its neighbours on the channel, None if it does not exist or is out
        of scope."""
        return await self.log.context(self.scope, event_id, before=before, after=after)

    async def last(self, place: Place) -> Event | None:
        """Return the newest spoken line of a channel, None if there is none."""
        found = await self._find(replace(self.query(place), types=SPOKEN), 1)
        return found[0] if found else None

    async def last_before(self, place: Place, time: datetime) -> Event | None:
        """Return the last event of a channel before a time, None if there is none."""
        found = await self._find(replace(self.query(place), until=time), 1)
        return found[0] if found else None

    async def first_from(self, place: Place, time: datetime) -> Event | None:
        """Return the first event of a channel at or after a time, None if there is none."""
        found = await self._find(replace(self.query(place), since=time), 1, newest=False)
        return found[0] if found else None

    async def newest_id(self) -> int:
        """Return the id of the event that arrived last, 0 in an empty log."""
        if arrived := await self.log.newest_id_in_channels(self._confine(self.query())):
            return arrived
        # Imported history is not recorded as arrivals.
        found = await self._find(self.query(), 1)
        return found[0].id if found else 0

    async def stats(self, query: Query, top: int) -> Stats:
        """Return totals of the spoken lines that match, with the `top` most talkative nicks."""
        return await self.log.stats(self._confine(query), top)

    async def heat_map(self, query: Query) -> HeatMap:
        """Count the lines of all time on the query's channels by weekday and hour in UTC."""
        return await self.log.heat_map(self._confine(query))

    async def days(self, query: Query, zone: ZoneInfo) -> list[DayStats]:
        """Return the days of a zone with lines on the query's channels, from `since` to `until`."""
        return await self.log.days(self._confine(query), zone)

    async def sparklines(self, days: int) -> dict[Place, tuple[int, ...]]:
        """Count the lines of each of the last `days`, per channel; silent channels are left out."""
        return await self.log.sparklines(self.scope, datetime.now(UTC), days)

    async def person(self, nick: str) -> PersonStats | None:
        """Return the statistics of a nick, None if it never spoke within the scope."""
        return await self.log.person(self.scope, nick)

    async def search(self, search_query: SearchQuery) -> SearchPage:
        """Return a page of search results. Raises HTTPException 422 for an invalid cursor."""
        try:
            return await self.log.search(
                replace(search_query, within=self._confine(search_query.within))
            )
        except BadCursor as error:
            raise HTTPException(422, f"cursor: {error}") from error

    async def search_semantic(self, text: str, within: Query) -> SearchPage:
        """Return the lines nearest in meaning to a text, on a single page.

        Raises HTTPException: 422 where lines have no embeddings, 503 when the text gets none.
        """
        if not self.retrieval.knows_meaning:
            raise HTTPException(
                422,
                "mode: lines are not searched by meaning here; whoever runs this site can set"
                " STORAGE_SEMANTIC=true",
            )
        try:
            page = await self.retrieval.near(text, self._confine(within))
        except StorageError as error:
            _log.warning("web.not_near", reason=type(error).__name__, error=str(error))
            page = None
        if page is None:
            raise HTTPException(503, "Lines cannot be searched by meaning now.")
        return page

    async def answers(self, text: str, within: Query, most: int) -> Found:
        """Return at most so many lines that may answer a text, if that is a plain question."""
        return await self.retrieval.answers(text, self._confine(replace(within, limit=most)))

    def follow(self, query: Query) -> AsyncIterator[Event]:
        """Return an iterator over the events after the query's `after_id` as they arrive, until the
        server stops or the viewer's login ends."""
        return self.notifier.events(self.log, self._confine(query), self.is_open)

    async def _find(self, query: Query, limit: int, *, newest: bool = True) -> list[Event]:
        return await self.log.find(replace(self._confine(query), limit=limit), newest=newest)

    def _confine(self, query: Query) -> Query:
        return replace(query, scope=self.scope)


def _log_access(state: AppStateDep, viewer: ViewerDep) -> LogAccess:
    async def is_open() -> bool:
        login = viewer.login
        return not login or await state.web_logins.token_fingerprint_of(login) is not None

    return LogAccess(state.log, state.notifier, viewer.scope, is_open, state.retrieval)


LogAccessDep = Annotated[LogAccess, Depends(_log_access)]


def _channel_query(log_access: LogAccessDep, channel: ChannelNameDep) -> Query:
    return log_access.query().in_channel(channel)


ChannelQuery = Annotated[Query, Depends(_channel_query)]
"""Query for the events in scope on the channel that a request names, or on all channels."""


def _recent_query(query: ChannelQuery, period: RecentRangeDep, nick: Nick = None) -> Query:
    return replace(query, nick=nick, since=period.since, until=period.until)


RecentQuery = Annotated[Query, Depends(_recent_query)]
"""`ChannelQuery` narrowed by the request's `nick`, `since`, `until` and `hours`, if given."""
