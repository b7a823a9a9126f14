"""The tools for MCP clients, confined to a scope: those that read the log, that which asks our
model, and those of other tendrils.

Their caller is a model, so they leave out people who have opted out of being shown to models.
"""

from __future__ import annotations

import difflib
import json
import re
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from harnesses.core.errors import PeerRefused
from harnesses.core.services.peers import OfferedTool, Origin, PeerQuestion, PeerService
from harnesses.core.tendril.status import ProcessState, read_reports
from harnesses.web.api.models import Answer, ChannelInfo, ChannelList, LogMessage
from harnesses.web.app_state import TOO_FAST, AppState
from harnesses.web.auth.tokens import Viewer
from harnesses.web.queries import MAX_QUERY_CHARS, NO_WORDS, Id, Moment, page_of
from harnesses.web.visitors import VISITOR, Visitor, visitor_turn
from llm.retrieval import NOTHING, Retrieval
from llm.tools.toolbox import Tool, ToolError, ToolOptions, ToolSource, tool
from storage.chat_log import statistics
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import SPOKEN, Identity, Scope
from storage.chat_log.event_table import Query
from storage.db.errors import BadCursor
from storage.search.models import Order, SearchQuery

_MAX_LINES = 200  # lines in a result
_MAX_COUNTED_LINES = 5_000  # lines that `who` counts
_MAX_PEOPLE = 100
_CONVERSATION = re.compile(r"[0-9a-f]{32}")
_ROUND_TRIP = 5.0  # seconds beyond the timeout of a tool, for the round trip to its tendril
_ASK_TIMEOUT = 600.0  # seconds; the run behind the answer has its own limit

Channel = Annotated[
    str, Field(max_length=300, description="`#channel` or `network/#channel`; empty: all of them")
]
Nick = Annotated[str, Field(max_length=100, description="only lines of this nick")]
Hours = Annotated[float, Field(ge=0, le=24 * 366 * 100, description="only the last hours; 0: all")]
Limit = Annotated[int, Field(ge=1, le=_MAX_LINES, description="maximum number of lines")]


class FoundLines(BaseModel):
    """A page of lines that a search has found; `next_cursor` fetches the next one."""

    answers: list[Answer] = Field(description="of a plain question, on the first page")
    lines: list[LogMessage]
    next_cursor: str | None


class ReadLines(BaseModel):
    """Lines in chronological order; `more` is true if others match beyond the limit."""

    lines: list[LogMessage]
    more: bool


class RecentSpeaker(BaseModel):
    """A nick with its number of lines and the time of the last one."""

    nick: str
    lines: int
    last: datetime


class RecentSpeakers(BaseModel):
    """The nicks that spoke, the most lines first."""

    people: list[RecentSpeaker]


@dataclass(frozen=True, slots=True)
class McpLogTools:
    """The owner of the tools over the log of `retrieval`, confined to `scope`; links begin with
    `base`, the URL of the site."""

    retrieval: Retrieval
    scope: Scope
    base: str

    @tool(reads=True, mcp=True)
    async def channels(self) -> ChannelList:
        """List the channels of the chat log that you may read, the most recently active first."""
        found = await self.retrieval.log.read(statistics.channels, self.scope)
        return ChannelList(channels=[ChannelInfo.from_channel(each, self.base) for each in found])

    @tool(reads=True, mcp=True)
    async def search_log(
        self,
        query: Annotated[
            str,
            Field(
                min_length=1,
                max_length=MAX_QUERY_CHARS,
                description='words that a line must have; also "a phrase", or, -without, prefix*,'
                " from:nick, in:#channel, since:2026-03, until:",
            ),
        ],
        channel: Channel = "",
        nick: Nick = "",
        hours: Hours = 0,
        limit: Limit = 20,
        cursor: Annotated[
            str, Field(max_length=100, description="`next_cursor` of the page before")
        ] = "",
    ) -> FoundLines:
        """Search what was said on the chat channels; the newest lines come first. A plain question
        also has `answers`, the lines that may answer it."""
        since = datetime.now(UTC) - timedelta(hours=hours) if hours else None
        within = await self._query(channel, nick, since=since, limit=limit)
        try:
            page = await self.retrieval.log.search_for_model(
                SearchQuery(text=query, within=within, order=Order.TIME, cursor=cursor or None)
            )
        except BadCursor as error:
            raise ToolError(f"cursor: {error}") from error
        if not query.strip() or not page.is_understood:
            raise ToolError(f"query: {NO_WORDS}")
        found = NOTHING if cursor else await self.retrieval.answers(query, within)
        return FoundLines(
            answers=Answer.from_found(found, self.base),
            lines=[LogMessage.from_event(hit.event, self.base) for hit in page.hits],
            next_cursor=page.next_cursor,
        )

    @tool(reads=True, mcp=True)
    async def read_log(
        self,
        channel: Channel = "",
        nick: Nick = "",
        since: Annotated[
            Moment | None,
            Field(description="from this time on: ISO 8601 with a time zone, or a date"),
        ] = None,
        until: Annotated[
            Moment | None, Field(description="before this time: ISO 8601 with zone, or a date")
        ] = None,
        before_id: Annotated[Id, Field(description="only lines before this one; 0: all")] = 0,
        after_id: Annotated[
            Id, Field(description="only lines after this one, the oldest first; 0: all")
        ] = 0,
        limit: Limit = 50,
    ) -> ReadLines:
        """Read lines of the chat log in order of time: the newest that fit, or those that follow
        `since` or `after_id`."""
        ids = {"before_id": before_id or None, "after_id": after_id or None}
        query = await self._query(channel, nick, since=since, until=until, **ids)
        newest = bool(before_id) or not (since or after_id)
        # `more` is decided before the lines of people who have opted out are removed, so there may
        # be fewer than `limit` lines although it is true.
        events, more = await page_of(self.retrieval.log, query, limit, newest=newest)
        shown = await self.retrieval.log.shown_to_model(events)
        lines = [LogMessage.from_event(each, self.base) for each in shown]
        return ReadLines(lines=lines, more=more)

    @tool(reads=True, mcp=True)
    async def who(
        self,
        channel: Channel = "",
        hours: Annotated[float, Field(gt=0, le=24 * 366, description="how far back")] = 24,
    ) -> RecentSpeakers:
        """List who spoke on a channel lately, with how many lines and when last."""
        since = datetime.now(UTC) - timedelta(hours=hours)
        query = await self._query(channel, "", since=since, types=SPOKEN, limit=_MAX_COUNTED_LINES)
        events = await self.retrieval.log.shown_to_model(await self.retrieval.log.find(query))
        lines = Counter(event.nick for event in events)
        last = {event.nick: event.time for event in events}  # chronological: the last one wins
        people = [
            RecentSpeaker(nick=nick, lines=count, last=last[nick])
            for nick, count in lines.most_common(_MAX_PEOPLE)
        ]
        return RecentSpeakers(people=people)

    async def _query(self, channel: str, nick: str, **narrowed: object) -> Query:
        """Return the query for the lines on a channel, "" for all. Raises ToolError for one without
        lines, or which the client may not read."""
        query = Query(scope=self.scope, nick=nick or None, **narrowed)  # type: ignore[arg-type]
        within = query.in_channel(name := ChannelName.parse(channel))
        some, log = Query(scope=self.scope, limit=1).in_channel(name), self.retrieval.log
        if name and not await log.find(some):
            found = await log.read(statistics.channels, self.scope)
            names = [str(each.place) for each in found]
            near = difflib.get_close_matches(channel, names, n=3, cutoff=0.0) or ["none"]
            raise ToolError(f"channel: there is none called {channel}; there is {', '.join(near)}")
        return within


class ConversationAnswer(BaseModel):
    """The answer of the model, and the id of the conversation, to continue it."""

    answer: str
    conversation: str


@dataclass(frozen=True, slots=True)
class AskTool:
    """The owner of the tool `ask`, by which the client at an `address` asks within `scope`."""

    state: AppState
    scope: Scope
    address: str

    @tool(mcp=True, timeout=_ASK_TIMEOUT)
    async def ask(
        self,
        question: Annotated[str, Field(min_length=1, max_length=4000)],
        conversation: Annotated[
            str,
            Field(max_length=32, description="`conversation` of an earlier answer, to continue it"),
        ] = "",
    ) -> ConversationAnswer:
        """Ask Terrarium, a language model that can look into the chat log. It takes a while."""
        if conversation and not _CONVERSATION.fullmatch(conversation):
            raise ToolError("conversation: leave it out, or pass that of an earlier answer")
        if not self.state.questions.try_acquire(self.address):
            raise ToolError(TOO_FAST)
        conversation = conversation or secrets.token_hex(16)
        # The name depends on the scope: a client with another one that knows the id gets a
        # conversation of its own, and learns nothing from answers to one that may read more.
        places = self.scope.places
        scope = "all" if places is None else ",".join(sorted(map(str, places)))
        name = sha256(f"{conversation} {scope}".encode()).hexdigest()[:32]
        visitor = Visitor(Viewer(self.scope), Identity(VISITOR, "mcp", name))
        tendril = self.state.tendril
        turn = visitor_turn(tendril, visitor, visitor.room, question, self.address)
        result = await tendril.turn(turn)
        if not result.ok:
            raise ToolError(result.text or "there is no answer: the question was stopped")
        return ConversationAnswer(answer=result.text, conversation=conversation)


class _AnyArguments(BaseModel):
    """Any JSON object; the tendril that runs the tool validates it."""

    model_config = ConfigDict(extra="allow")


class TendrilTools(ToolSource):
    """The tools of all running tendrils but `own`, named `TENDRIL_TOOL`, confined to `scope`.

    `own` is the tendril that offers them here; `data` is the folder of the status files.
    """

    def __init__(self, peers: PeerService, own: str, data: Path, scope: Scope) -> None:
        self._peers, self._own, self._data = peers, own, data
        self._origin = Origin(own, Identity(VISITOR), scope)

    def tools(self) -> Iterable[Tool]:
        """Yield the tools of the tendrils that are ready at the moment."""
        for report in read_reports(self._data):
            is_there = report.is_fresh and report.state is ProcessState.READY
            for offered in report.mcp_tools if is_there and report.name != self._own else ():
                found = OfferedTool.model_validate(offered)
                own_name = str(found.function["name"])
                function = {**found.function, "name": f"{report.name}_{own_name}"}
                # The timeouts are nested, so that the innermost one gives the reason: the tool's
                # own in its tendril, that of the call, that of this tool.
                seconds = found.timeout + _ROUND_TRIP
                yield Tool(
                    function["name"],
                    _AnyArguments,
                    {"type": "function", "function": function},
                    partial(self._call, report.name, own_name, seconds),
                    ToolOptions(reads=found.reads, timeout=seconds + _ROUND_TRIP, mcp=True),
                )

    async def _call(self, tendril: str, tool: str, seconds: float, /, **arguments: Any) -> object:
        """Have a tendril run one of its tools, and return the result. Raises ToolError."""
        call = PeerQuestion(json.dumps(arguments), self._origin, tool)
        try:
            answer = await self._peers.call(tendril, call, seconds)
        except PeerRefused as error:
            raise ToolError(str(error)) from error
        if not answer.ok:
            raise ToolError(answer.text)
        result: object = json.loads(answer.text)
        return result
