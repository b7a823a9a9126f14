"""Parameters that several endpoints share, the queries of the log that they make, and reads.

Every query has the scope of the viewer; what a scope covers is decided in the log itself.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import structlog
from fastapi import Depends, HTTPException, Request
from fastapi import Query as Param
from pydantic import AwareDatetime, BeforeValidator, Field

from harnesses.web.app_state import AppStateDep, ScopeDep
from harnesses.web.auth.middleware import INDEXABLE
from harnesses.web.settings import place_of
from llm.retrieval import Retrieval
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import NICK_GAP, Event, Place, Scope
from storage.chat_log.event_table import Query
from storage.db.errors import StorageError
from storage.log import ChatLog
from storage.search.models import SearchPage

_MAX_ID = 2**53 - 1  # JavaScript's largest safe integer
MAX_QUERY_CHARS = 200  # characters of a search
NO_WORDS = "write at least one word to look for"
_LOST_PLUS = re.compile(r"(T\d\d:\d\d(?::\d\d(?:\.\d+)?)?) (\d\d:?\d\d)$")

_log = structlog.get_logger()


def _moment(value: Any) -> Any:
    """Read a bare date as its midnight in UTC, and restore a `+` before an offset, which URL
    decoding has turned into a space."""
    if not isinstance(value, str):
        return value
    try:
        day = date.fromisoformat(value)
    except ValueError:
        return _LOST_PLUS.sub(r"\1+\2", value)
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]
Id = Annotated[int, Field(ge=0, le=_MAX_ID)]
Limit = Annotated[int, Param(ge=1, le=500, description="maximum number of results")]
WithoutGap = BeforeValidator(lambda nick: nick.replace(NICK_GAP, "") if nick else nick)
Nick = Annotated[
    str | None, Param(max_length=100, description="only this nick", examples=["ada"]), WithoutGap
]


def _channel_query(
    scope: ScopeDep,
    channel: Annotated[
        str | None,
        Param(
            max_length=300,
            description="`#chan` or `network/#chan`; in a URL write # as %23",
            examples=["irc/#terrarium"],
        ),
    ] = None,
) -> Query:
    return Query(scope=scope).in_channel(ChannelName.parse(channel))


ChannelQuery = Annotated[Query, Depends(_channel_query)]
"""Query for the events in scope on the channel that a request names, or on all channels."""


def _range_query(
    query: ChannelQuery,
    nick: Nick = None,
    since: Annotated[
        Moment | None,
        Param(
            description="from this time on: ISO 8601 with a time zone, or a date",
            examples=["2026-03-01T12:00:00Z"],
        ),
    ] = None,
    until: Annotated[
        Moment | None, Param(description="before this time: ISO 8601 with a time zone, or a date")
    ] = None,
) -> Query:
    return replace(query, nick=nick, since=since, until=until)


RangeQuery = Annotated[Query, Depends(_range_query)]
"""`ChannelQuery` narrowed by the request's `nick`, `since` and `until`, if given."""


def _recent_query(
    query: RangeQuery,
    hours: Annotated[
        float | None, Param(gt=0, le=24 * 366 * 100, description="only the last hours")
    ] = None,
) -> Query:
    if hours is None:
        return query
    ago = datetime.now(UTC) - timedelta(hours=hours)
    return replace(query, since=max(ago, query.since) if query.since else ago)


RecentQuery = Annotated[Query, Depends(_recent_query)]
"""`RangeQuery` narrowed by the request's `hours`, if given."""


def in_place(scope: Scope, place: Place) -> Query:
    """Return the query for all events of one channel, if that is in scope."""
    return Query(scope=scope, network=place.network, channel=place.channel)


async def _place(
    request: Request, state: AppStateDep, scope: ScopeDep, network: str, name: str
) -> Place:
    """Return the channel with the spelling of the log: the path may differ in case, and may leave
    out the `#`. Raises HTTPException 404.

    Also tells `SecurityMiddleware` whether search engines may index the page.
    """
    for wanted in (name, f"#{name}"):
        found = await first(state.log, in_place(scope, Place(network, wanted)))
        if found is not None:
            place = Place(found.network, found.channel)
            public = [str(place_of(each)).lower() for each in state.settings.public]
            setattr(request.state, INDEXABLE, str(place).lower() in public)
            return place
    raise HTTPException(404, f"Nothing has been logged of {name} on {network}.")


ChannelDep = Annotated[Place, Depends(_place)]
"""The channel in the path of a page."""


async def first(log: ChatLog, query: Query, *, newest: bool = True) -> Event | None:
    """Return the newest (or oldest) event that matches, None if there is none."""
    found = await log.find(replace(query, limit=1), newest=newest)
    return found[0] if found else None


async def page_of(
    log: ChatLog, query: Query, limit: int, *, newest: bool = True
) -> tuple[list[Event], bool]:
    """Return the newest (or oldest) `limit` events that match, in chronological order, and whether
    there are more."""
    found = await log.find(replace(query, limit=limit + 1), newest=newest)
    if len(found) <= limit:
        return found, False
    # Drop the extra event, which is the one farthest from the end that was asked for.
    return (found[1:] if newest else found[:-1]), True


async def search_by_meaning(retrieval: Retrieval, text: str, within: Query) -> SearchPage:
    """Return the lines nearest in meaning to a text, on a single page. Raises HTTPException: 422
    where lines have no embeddings, 503 when the text gets none."""
    if not retrieval.knows_meaning:
        raise HTTPException(
            422,
            "mode: lines are not searched by meaning here; the operator of this site can set"
            " STORAGE_SEMANTIC=true",
        )
    try:
        page = await retrieval.near(text, within)
    except StorageError as error:
        _log.warning("web.not_near", reason=type(error).__name__, error=str(error))
        page = None
    if page is None:
        raise HTTPException(503, "Lines cannot be searched by meaning now.")
    return page
