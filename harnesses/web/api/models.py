"""What the log API answers with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, datetime
from typing import Annotated

from pydantic import BaseModel, Field

from harnesses.core.permalinks import channel_path, permalink
from storage.chat_log.event import Event, EventType
from storage.chat_log.statistics import ChannelStats, DayStats, HeatMap, Stats

EventId = Annotated[int, Field(examples=[1042])]


class LogMessage(BaseModel):
    """One event of a channel. Hosts and user names are left out: they can identify people."""

    id: EventId
    network: str = Field(examples=["irc"])
    channel: str = Field(examples=["#terrarium"])
    type: EventType
    time: datetime = Field(description="ISO 8601 with zone", examples=["2026-03-01T12:00:00Z"])
    nick: str = Field(examples=["ada"])
    text: str = Field(examples=["the frogs are awake"])
    target: str = Field(description="the nick kicked, or the new nick")
    own: bool = Field(description="said by Terrarium itself")
    reply_to: int | None = Field(description="id of the question that an own line answers")
    link: str = Field(
        examples=["/channel/irc/%23terrarium?at=1042&time=2026-03-01T12:00:00Z#e1042"]
    )

    @classmethod
    def from_event(cls, event: Event) -> LogMessage:
        """The public form of an event."""
        return cls(
            id=event.id,
            network=event.network,
            channel=event.channel,
            type=event.type,
            time=event.time,
            nick=event.nick,
            text=event.text,
            target=event.target,
            own=event.own,
            reply_to=event.reply_to,
            link=permalink(event),
        )


class ChannelInfo(BaseModel):
    """A public channel, its number of events and the time of the last one."""

    network: str = Field(examples=["irc"])
    name: str = Field(examples=["#terrarium"])
    channel: str = Field(description="what `channel` parameters take", examples=["irc/#terrarium"])
    events: int
    last: datetime | None
    link: str

    @classmethod
    def from_channel(cls, channel: ChannelStats) -> ChannelInfo:
        """The public form of a channel."""
        place = channel.place
        return cls(
            network=place.network,
            name=place.channel,
            channel=f"{place.network}/{place.channel}",
            events=channel.events,
            last=channel.last_time,
            link=channel_path(place),
        )


class ChannelList(BaseModel):
    """The public channels, the most recently active first."""

    channels: list[ChannelInfo]


class Messages(BaseModel):
    """Events in order of time; `more` says that others fit beyond the limit."""

    messages: list[LogMessage]
    more: bool


class MessageContext(BaseModel):
    """An event and its neighbours on the channel, each list in order of time."""

    before: list[LogMessage]
    message: LogMessage
    after: list[LogMessage]


class Speaker(BaseModel):
    """A nick and how many lines it said."""

    nick: str
    lines: int


class DayCount(BaseModel):
    """The lines of a day, and how many of them were answers of Terrarium."""

    date: date
    lines: int
    replies: int


class LogStats(BaseModel):
    """Totals of the spoken lines that fit. `replies` are answers of Terrarium."""

    lines: int
    people: int
    replies: int
    first: datetime | None
    last: datetime | None
    top: list[Speaker]
    days: list[DayCount] | None = Field(
        description="the newest 366 days with lines, oldest first; null for a nick"
    )
    heat_map: list[list[int]] | None = Field(
        description="lines of all time by weekday (Monday first) and hour, in UTC; null for a nick"
    )

    @classmethod
    def from_stats(
        cls, stats: Stats, days: Sequence[DayStats] | None = None, heat: HeatMap | None = None
    ) -> LogStats:
        """The public form of the totals."""
        return cls(
            lines=stats.lines,
            people=stats.people,
            replies=stats.replies,
            first=stats.first,
            last=stats.last,
            top=[Speaker(nick=nick, lines=lines) for nick, lines in stats.top],
            days=None if days is None else [DayCount(**asdict(day)) for day in days[-366:]],
            heat_map=None if heat is None else [list(hours) for hours in heat],
        )


class ErrorDetails(BaseModel):
    """What was wrong: `message` says what to do, `param` which parameter it is about."""

    message: str
    type: str
    param: str | None = None


class ErrorEnvelope(BaseModel):
    """The body of every answer with a status of 400 or more."""

    error: ErrorDetails


class Health(BaseModel):
    """That the web tendril answers."""

    status: str = "ok"
