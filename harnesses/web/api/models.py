"""Response bodies of the log API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from harnesses.core.addresses import channel_path, permalink
from llm.retrieval import NOTHING, SURE, Found
from storage.chat_log.event import Event, EventType, public_text
from storage.chat_log.statistics import ChannelStats, DayStats, HeatMap, Stats
from storage.search.models import Facets, MatchSnippet, SearchPage

MAX_SAID_CHARS = 2000
"""The most characters of a text that a program has Terrarium say."""

EventId = Annotated[int, Field(examples=[1042])]


class LogMessage(BaseModel):
    """An event of a channel, without hosts and user names, which can identify people."""

    id: EventId
    network: str = Field(examples=["irc"])
    channel: str = Field(examples=["#terrarium"])
    type: EventType
    time: datetime = Field(description="ISO 8601 with zone", examples=["2026-03-01T12:00:00Z"])
    nick: str = Field(examples=["ada"])
    text: str = Field(examples=["the frogs are awake"])
    target: str = Field(description="the nick that was kicked, or the new nick")
    own: bool = Field(description="sent by Terrarium itself")
    reply_to: int | None = Field(description="id of the question that an own line answers")
    link: str = Field(
        examples=["/channel/irc/%23terrarium?at=1042&time=2026-03-01T12:00:00Z#e1042"]
    )

    @classmethod
    def from_event(cls, event: Event, base: str = "", **more: Any) -> Self:
        """Return the public form of an event, with the further fields of a subclass; its link
        begins with `base`."""
        return cls(
            id=event.id,
            network=event.network,
            channel=event.channel,
            type=event.type,
            time=event.time,
            nick=event.nick,
            text=public_text(event),
            target=event.target,
            own=event.own,
            reply_to=event.reply_to,
            link=base + permalink(event),
            **more,
        )


class ChannelInfo(BaseModel):
    """A public channel, its number of events and the time of the last one."""

    network: str = Field(examples=["irc"])
    name: str = Field(examples=["#terrarium"])
    channel: str = Field(description="value for `channel` parameters", examples=["irc/#terrarium"])
    events: int
    last: datetime | None
    link: str

    @classmethod
    def from_channel(cls, channel: ChannelStats, base: str = "") -> ChannelInfo:
        """Return the public form of a channel; its link begins with `base`."""
        place = channel.place
        return cls(
            network=place.network,
            name=place.channel,
            channel=str(place),
            events=channel.events,
            last=channel.last_time,
            link=base + channel_path(place),
        )


class ChannelList(BaseModel):
    """The public channels, the most recently active first."""

    channels: list[ChannelInfo]


class Messages(BaseModel):
    """Events in chronological order; `more` is true if others match beyond the limit."""

    messages: list[LogMessage]
    more: bool


class MessageContext(BaseModel):
    """An event and its neighbours on the channel, each list in chronological order."""

    before: list[LogMessage]
    message: LogMessage
    after: list[LogMessage]


class Speaker(BaseModel):
    """A nick with its number of lines."""

    nick: str
    lines: int


class DayCount(BaseModel):
    """The number of lines of a day; `replies` of them are answers by Terrarium."""

    date: date
    lines: int
    replies: int


class LogStats(BaseModel):
    """Totals of the spoken lines that match; `people` counts nicks, `replies` the answers by
    Terrarium."""

    lines: int
    people: int
    replies: int
    first: datetime | None
    last: datetime | None
    top: list[Speaker]
    days: list[DayCount] | None = Field(
        description="the newest 366 days with lines, oldest first; null for a nick"
    )
    heat_map: HeatMap | None = Field(
        description="lines of all time by weekday (Monday first) and hour, in UTC; null for a nick"
    )

    @classmethod
    def from_stats(
        cls, stats: Stats, days: Sequence[DayStats] | None = None, heat: HeatMap | None = None
    ) -> LogStats:
        """Return the public form of the totals."""
        top = [Speaker(nick=nick, lines=lines) for nick, lines in stats.top]
        return cls(
            **{**asdict(stats), "top": top},
            days=None if days is None else [DayCount(**asdict(day)) for day in days[-366:]],
            heat_map=heat,
        )


class SearchHit(LogMessage):
    """A line that a search has found."""

    snippet: MatchSnippet = Field(
        description="the part of the line that matched; `marks` are the ranges to"
        " highlight, as [start, end] character positions in `text`",
        examples=[{"text": "the frogs are awake", "marks": [[4, 9]]}],
    )


class FacetCount(BaseModel):
    """A facet value with the number of hits that have it."""

    value: str = Field(examples=["irc/#terrarium"])
    count: int


class FacetCounts(BaseModel):
    """Counts of the hits in `count` by channel and by nick, most frequent first, and by month in
    UTC, newest first."""

    channels: list[FacetCount]
    nicks: list[FacetCount]
    months: list[FacetCount]

    @classmethod
    def from_facets(cls, facets: Facets) -> FacetCounts:
        """Return the public form of facets."""
        shares = facets.channels, facets.nicks, facets.months
        channels, nicks, months = (
            [FacetCount(value=str(value), count=count) for value, count in each] for each in shares
        )
        return cls(channels=channels, nicks=nicks, months=months)


class Answer(LogMessage):
    """A line that may answer the question; `score` is the probability that it does."""

    score: float = Field(ge=0, le=1)
    is_sure: bool = Field(description="whether the line is likely the answer")

    @classmethod
    def from_found(cls, found: Found, base: str = "") -> list[Answer]:
        """Return the public form of found lines, whose links begin with `base`."""
        return [
            cls.from_event(each.event, base, score=round(each.score, 3), is_sure=each.score >= SURE)
            for each in found.passages
        ]


class SearchResults(BaseModel):
    """A page of spoken lines; `next_cursor` fetches the next one."""

    answers: list[Answer] = Field(
        description="the lines that may answer a plain question, best first; on the first page only"
    )
    results: list[SearchHit]
    next_cursor: str | None = Field(examples=["1772366400000.0.0"])
    count: int | None = Field(description="number of matching lines, on the first page only")
    more_than_counted: bool = Field(description="there are or may be more than `count`")
    searched_back_to: datetime | None = Field(
        description="set when a search reached its time limit before the beginning of the log:"
        " lines back to this time were searched, and `next_cursor` continues from there"
    )
    facets: FacetCounts | None = Field(description="on the first page only")
    notes: list[str] = Field(description="sentences about what looks like a filter and is none")

    @classmethod
    def from_page(cls, page: SearchPage, answers: Found = NOTHING, *, first: bool) -> SearchResults:
        """Return the public form of a page."""
        return cls(
            answers=Answer.from_found(answers),
            results=[SearchHit.from_event(hit.event, snippet=hit.snippet) for hit in page.hits],
            next_cursor=page.next_cursor,
            count=page.count if first else None,
            more_than_counted=page.more_than_counted,
            searched_back_to=page.searched_back_to,
            facets=FacetCounts.from_facets(page.facets) if first else None,
            notes=list(page.notes),
        )


class SaidText(BaseModel):
    """A text that Terrarium says on `channel`, now or as soon as it is there."""

    channel: str = Field(examples=["irc/#terrarium"])
    text: str


class ErrorDetails(BaseModel):
    """An error: `message` says what to do, `param` names the invalid parameter, if any."""

    message: str
    type: str
    param: str | None = None


class ErrorEnvelope(BaseModel):
    """The body of every error response: those with a status of 400 or more."""

    # For the description of the API; `harnesses.web.auth.middleware.refuse` writes it.

    error: ErrorDetails


class Health(BaseModel):
    """The state of the web tendril."""

    status: str = "ok"
