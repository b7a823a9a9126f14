"""The search page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi import Query as Param

from harnesses.core.addresses import with_query
from harnesses.web.app_state import AppStateDep, ScopeDep
from harnesses.web.queries import MAX_QUERY_CHARS, WithoutGap, search_by_meaning
from harnesses.web.rendering.timezones import ZoneDep, ZoneName
from harnesses.web.rendering.view import page
from llm.retrieval import NOTHING
from storage.chat_log import statistics
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event_table import Query
from storage.search.models import Order, SearchPage, SearchQuery

_HITS_PER_PAGE = 50
_MONTH = r"(19[7-9]\d|20\d\d|21\d\d)-(0[1-9]|1[0-2])"
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The query parameters of the search page."""

    q: Annotated[str, Param(max_length=MAX_QUERY_CHARS)] = ""
    channel: Annotated[str, Param(max_length=300)] = ""
    nick: Annotated[str, Param(max_length=100), WithoutGap] = ""
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
    state: AppStateDep,
    scope: ScopeDep,
    zone: ZoneDep,
    asked: Annotated[SearchForm, Depends()],
) -> Response:
    """Show the lines that match, with facets by channel, nick and month."""
    since = until = None
    if asked.month:  # in UTC, as facets count months
        since = datetime.strptime(asked.month, "%Y-%m").replace(tzinfo=UTC)
        until = since.replace(year=since.year + since.month // 12, month=since.month % 12 + 1)
    within = Query(
        scope=scope, nick=asked.nick or None, since=since, until=until, limit=_HITS_PER_PAGE
    ).in_channel(ChannelName.parse(asked.channel))
    found = SearchPage(is_understood=False)
    if asked.mode == "meaning" and asked.q.strip():
        found = await search_by_meaning(state.retrieval, asked.q, within)
    elif asked.text.strip():
        search = SearchQuery(
            text=asked.text, within=within, order=asked.order, cursor=asked.cursor, zone=zone
        )
        found = await state.log.search(search)
    answers = NOTHING
    if asked.cursor is None:
        answers = await state.retrieval.answers(asked.q, within)
    channels = [(str(place), count) for place, count in found.facets.channels]
    return page(
        request,
        "search.html",
        asked=asked,
        searched=found.is_understood,
        first=asked.cursor is None,
        result=found,
        answers=answers,
        facets=[  # title, query parameter, values with counts
            ("Channels", "channel", channels),
            ("People", "nick", found.facets.nicks),
            ("Months", "month", found.facets.months),
        ],
        feed=asked.address("/feed.atom", month=None, order=None, tz=None),
        channels=await state.log.read(statistics.channels, scope),
        meaning=state.retrieval.knows_meaning and bool(asked.q.strip()),
    )
