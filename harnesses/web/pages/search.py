"""The search page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import Response

from harnesses.core.permalinks import with_query
from harnesses.web.log_access import LogAccessDep
from harnesses.web.params import MAX_QUERY_CHARS
from harnesses.web.rendering.timezones import ZoneDep, ZoneName
from harnesses.web.rendering.view import page
from llm.retrieval import NOTHING
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event_table import Query
from storage.search.models import Facets, Order, SearchQuery
from storage.search.query_parser import parse

_HITS_PER_PAGE = 50
_ANSWERS = 3  # lines that may answer a question
_MONTH = r"(19[7-9]\d|20\d\d|21\d\d)-(0[1-9]|1[0-2])"
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The query parameters of the search page."""

    q: Annotated[str, Param(max_length=MAX_QUERY_CHARS)] = ""
    channel: Annotated[str, Param(max_length=300)] = ""
    nick: Annotated[str, Param(max_length=100)] = ""
    month: Annotated[str, Param(pattern=f"^({_MONTH})?$")] = ""
    order: Order = Order.TIME
    mode: Literal["words", "meaning"] = "words"
    cursor: Annotated[str | None, Param(max_length=100)] = None
    tz: ZoneName | None = None

    @property
    def text(self) -> str:
        """The search text; if none was typed, the chosen nick, channel and month as operators, so
        that the search lists every line that matches them."""
        if self.q.strip():
            return self.q
        choices = {"from": self.nick, "in": self.channel, "since": self.month}
        return " ".join(f'{key}:"{value}"' for key, value in choices.items() if value)

    def address(self, page: str = "/search", **changes: object) -> str:
        """Return the address of this search with the parameters in `changes` replaced; None
        removes one. A cursor is not kept."""
        query = {"q": self.q, "channel": self.channel, "nick": self.nick, "month": self.month}
        order = None if self.order is Order.TIME else self.order
        mode = None if self.mode == "words" else self.mode
        return with_query(page, **{**query, "order": order, "mode": mode, "tz": self.tz, **changes})


@router.get("/search")
async def show_search(
    request: Request,
    log_access: LogAccessDep,
    zone: ZoneDep,
    asked: Annotated[SearchForm, Depends()],
) -> Response:
    """Show the lines that match, with facets by channel, nick and month."""
    search = SearchQuery(
        text=asked.text,
        within=_within(log_access.query(), asked),
        order=asked.order,
        cursor=asked.cursor,
        zone=zone,
    )
    is_semantic = asked.mode == "meaning" and asked.q.strip()
    found = await (
        log_access.search_semantic(asked.q, search.within)
        if is_semantic
        else log_access.search(search)
    )
    return page(
        request,
        "search.html",
        asked=asked,
        searched=bool(parse(asked.text, now=datetime.now(UTC))),
        first=asked.cursor is None,
        result=found,
        answers=await log_access.answers(asked.q, search.within, _ANSWERS)
        if asked.cursor is None
        else NOTHING,
        facets=_facets(found.facets),
        feed=asked.address("/feed.atom", month=None, order=None, tz=None),
        channels=await log_access.channels(),
        meaning=log_access.retrieval.knows_meaning and bool(asked.q.strip()),
    )


def _within(query: Query, form: SearchForm) -> Query:
    since, until = _month(form.month) if form.month else (None, None)
    return replace(
        query.in_channel(ChannelName.parse(form.channel)),
        nick=form.nick or None,
        since=since,
        until=until,
        limit=_HITS_PER_PAGE,
    )


def _month(month: str) -> tuple[datetime, datetime]:
    """Return the half-open range of a month ("2026-03") in UTC, as facets count months."""
    begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    return begin, begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)


def _facets(facets: Facets) -> list[tuple[str, str, list[tuple[str, int]]]]:
    """Return (title, query parameter, values with counts) of each facet."""
    channels = [(str(place), count) for place, count in facets.channels]
    return [
        ("Channels", "channel", channels),
        ("People", "nick", list(facets.nicks)),
        ("Months", "month", list(facets.months)),
    ]
