"""Endpoints of the log API, confined to the scope of the viewer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Annotated, Literal
from uuid import uuid4

from fastapi import APIRouter, Depends, Header, HTTPException, Request, Response
from fastapi import Query as Param
from fastapi.exceptions import RequestValidationError
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import StreamingResponse

from harnesses.core.addresses import irc_networks
from harnesses.web.api.models import (
    MAX_SAID_CHARS,
    ChannelInfo,
    ChannelList,
    ErrorEnvelope,
    Health,
    LogMessage,
    LogStats,
    MessageContext,
    Messages,
    SaidText,
    SearchResults,
)
from harnesses.web.app_state import AppStateDep, FollowDep, ScopeDep, ViewerDep
from harnesses.web.auth.tokens import address_of
from harnesses.web.queries import (
    MAX_QUERY_CHARS,
    NO_WORDS,
    ChannelQuery,
    Id,
    Limit,
    RangeQuery,
    RecentQuery,
    first,
    page_of,
    search_by_meaning,
)
from storage.chat_log import arrivals, statistics
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Event, EventType, Place
from storage.chat_log.event_table import Query, channels_in
from storage.search.models import Order, SearchQuery
from storage.search.query_parser import Mode

_PROBLEMS: dict[int | str, dict[str, object]] = {
    404: {"model": ErrorEnvelope, "description": "no such event on a public channel"},
    422: {"model": ErrorEnvelope, "description": "a parameter is wrong; the message says which"},
}
# Where the response is not JSON, FastAPI would declare the error bodies with its media type too, so
# their schema is referenced by hand.
_PROBLEMS_OF_STREAMS: dict[int | str, dict[str, object]] = {
    status: {
        "description": problem["description"],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}},
    }
    for status, problem in _PROBLEMS.items()
}
_SAY_PROBLEMS: dict[int | str, dict[str, object]] = {
    403: {"model": ErrorEnvelope, "description": "the token may not say anything"},
    429: {"model": ErrorEnvelope, "description": "texts come too fast"},
}
_SEMANTIC_PROBLEMS: dict[int | str, dict[str, object]] = {
    503: {"model": ErrorEnvelope, "description": "lines cannot be searched by meaning now"}
}
router = APIRouter(prefix="/api", tags=["log"], responses=_PROBLEMS)
health = APIRouter(tags=["health"])


class JsonLines(StreamingResponse):
    """A stream of JSON objects, one per line."""

    media_type = "application/x-ndjson"


def _message_query(
    query: RangeQuery,
    type: Annotated[
        list[EventType] | None, Param(description="only events of this type; may be repeated")
    ] = None,
    before_id: Annotated[Id | None, Param(description="only events before this id")] = None,
    after_id: Annotated[
        Id | None, Param(description="only events after this id, oldest first")
    ] = None,
) -> Query:
    types = frozenset(type) if type else None
    return replace(query, types=types, before_id=before_id, after_id=after_id)


MessageQuery = Annotated[Query, Depends(_message_query)]


SearchWords = Annotated[
    str,
    Param(
        max_length=MAX_QUERY_CHARS,
        description='words, "phrases", -not, or, prefix*, from:nick, in:#channel, since:2026-03,'
        " until:, hours:24",
        examples=["frogs awake"],
    ),
]


@health.get("/health", responses={503: {"model": Health}})
async def answer_health(state: AppStateDep, response: Response) -> Health:
    """Report whether the web tendril works: 503 while it cannot write to its disk or database.
    Needs no token."""
    if not state.tendril.disk_trouble:
        return Health()
    response.status_code = 503
    away = state.tendril.medium_services.is_database_away
    return Health(status=f"the {'database' if away else 'disk'} cannot be written")


@router.get("/channels")
async def list_channels(state: AppStateDep, scope: ScopeDep) -> ChannelList:
    """The public channels, the most recently active first."""
    found = await state.log.read(statistics.channels, scope)
    return ChannelList(channels=[ChannelInfo.from_channel(channel) for channel in found])


@router.get("/messages")
async def list_messages(state: AppStateDep, query: MessageQuery, limit: Limit = 100) -> Messages:
    """Return events in chronological order: the newest that match, or with `after_id` alone the
    ones that follow it."""
    newest = query.after_id is None or query.before_id is not None
    found, more = await page_of(state.log, query, limit, newest=newest)
    return Messages(messages=_messages(found), more=more)


@router.get("/messages.jsonl", response_class=JsonLines, responses=_PROBLEMS_OF_STREAMS)
async def dump_messages(state: AppStateDep, query: MessageQuery) -> JsonLines:
    """Stream all events that match, oldest first, as JSON Lines, without a limit."""

    async def lines() -> AsyncIterator[bytes]:
        async for events in state.log.pieces(query):
            for event in events:
                yield LogMessage.from_event(event).model_dump_json().encode() + b"\n"

    return JsonLines(lines())


@router.get("/messages/{id}/context")
async def show_context(
    state: AppStateDep,
    scope: ScopeDep,
    id: Id,
    before: Annotated[int, Param(ge=0, le=200)] = 10,
    after: Annotated[int, Param(ge=0, le=200)] = 10,
) -> MessageContext:
    """Return an event with the events before and after it on its channel."""
    found = await state.log.context(scope, id, before=before, after=after)
    if found is None:
        raise HTTPException(404, f"There is no event {id} on a public channel.")
    return MessageContext(
        before=_messages(found.before),
        message=LogMessage.from_event(found.event),
        after=_messages(found.after),
    )


def _said_query(
    query: RecentQuery,
    said: Annotated[
        Literal["people", "all"], Param(description="lines of people alone, or all lines")
    ] = "all",
) -> Query:
    return replace(query, own=False if said == "people" else None)


@router.get("/search", responses=_SEMANTIC_PROBLEMS)
async def search(
    state: AppStateDep,
    query: Annotated[Query, Depends(_said_query)],
    q: SearchWords,
    mode: Annotated[
        Mode | Literal["semantic"],
        Param(
            description="all words, any word, the exact phrase, or lines of similar meaning:"
            " best first, on one page, if lines have embeddings"
        ),
    ] = Mode.AND,
    order: Annotated[Order, Param(description="newest first, or best first")] = Order.TIME,
    limit: Limit = 50,
    cursor: Annotated[
        str | None, Param(max_length=100, description="`next_cursor` of the page before")
    ] = None,
) -> SearchResults:
    """Search the spoken lines; returns a page of hits with highlighted snippets. For a plain
    question, `answers` has the lines that may answer it."""
    within = replace(query, limit=limit)
    no_words = RequestValidationError(
        [{"loc": ("query", "q"), "msg": NO_WORDS, "type": "value_error"}]
    )
    if not q.strip():
        raise no_words
    if mode == "semantic":
        found = await search_by_meaning(state.retrieval, q, within)
        return SearchResults.from_page(found, first=True)
    search_query = SearchQuery(text=q, within=within, mode=mode, order=order, cursor=cursor)
    found = await state.log.search(search_query)
    if not found.is_understood:
        raise no_words
    if cursor is not None:
        return SearchResults.from_page(found, first=False)
    answers = await state.retrieval.answers(q, within)
    return SearchResults.from_page(found, answers, first=True)


@router.get("/stats")
async def show_stats(state: AppStateDep, query: RecentQuery) -> LogStats:
    """Return totals of the spoken lines, the nicks with the most lines, and lines over time."""
    totals = await state.log.read(statistics.stats, query, top=10)
    if query.nick is not None:
        return LogStats.from_stats(totals)
    return LogStats.from_stats(
        totals,
        await state.log.read(statistics.days, query),
        await state.log.read(statistics.heat_map, query),
    )


@router.get("/stream", response_class=EventSourceResponse, responses=_PROBLEMS_OF_STREAMS)
async def stream(
    state: AppStateDep,
    follow: FollowDep,
    query: ChannelQuery,
    after_id: Annotated[Id | None, Param(description="start after the event with this id")] = None,
    last_event_id: Annotated[
        Id | None, Header(description="sent by a browser when it reconnects")
    ] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Stream events as they happen (Server-Sent Events); a client that reconnects misses none."""
    # A browser reconnects to the same address, so the header is newer than its `after_id`.
    start = after_id if last_event_id is None else last_event_id
    if start is None:  # from the event that arrived last, in the whole scope
        everywhere = Query(scope=query.scope)
        start = await state.log.read(arrivals.newest_id_in_channels, everywhere)
        if not start and (newest := await first(state.log, everywhere)):
            start = newest.id  # imported history is not recorded as arrivals
    # An id without data sets the client's last event id and dispatches no event, so a client that
    # is disconnected before the first event can resume, too (WHATWG HTML, section 9.2.6).
    yield ServerSentEvent(id=str(start), retry=2000)
    async for event in follow(replace(query, after_id=start)):
        yield ServerSentEvent(id=str(event.id), data=LogMessage.from_event(event))


@router.post(
    "/say",
    status_code=202,
    responses=_SAY_PROBLEMS,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"text/plain": {"schema": {"type": "string", "maxLength": MAX_SAID_CHARS}}},
        }
    },
)
async def say(
    request: Request,
    state: AppStateDep,
    viewer: ViewerDep,
    channel: Annotated[
        str,
        Param(
            max_length=300,
            description="`#chan` or `network/#chan`; in a URL write # as %23",
            examples=["irc/#terrarium"],
        ),
    ],
    key: Annotated[
        str | None,
        Param(max_length=200, description="a text that was sent with this key is not said again"),
    ] = None,
) -> SaidText:
    """Have Terrarium say the text in the body on a channel, now or as soon as it is there, with the
    name of the account, if the token has one. Needs a token that may."""
    if not viewer.is_authenticated:
        raise HTTPException(401)
    if not viewer.may_say:
        raise HTTPException(
            403,
            "This token may not say anything: the operator of this site can set say = true in"
            " its table [web.tokens.NAME] or [web.accounts.NAME].",
        )
    try:
        wanted = Query(scope=viewer.scope).in_channel(ChannelName.parse_channel(channel))
    except ValueError as error:
        raise HTTPException(422, f"channel: {error}") from error
    seen, there = await state.log.read(channels_in, wanted), irc_networks(state.tendril.config)
    found = [row for row in seen.rows.values() if row["network"] in there]
    if len(found) > 1:
        raise HTTPException(422, f"channel: {channel} is on several networks; name one of them")
    if not found:
        raise HTTPException(
            404, f"Terrarium is on no channel {channel} that you may read; see /api/channels."
        )
    place = Place(found[0]["network"], found[0]["name"])
    text = (await request.body()).decode("utf-8", "replace").strip()
    if not text or len(text) > MAX_SAID_CHARS:
        raise HTTPException(
            422, f"Send a text of 1 to {MAX_SAID_CHARS} characters as the body; it has {len(text)}."
        )
    if not state.questions.try_acquire(("say", address_of(request))):
        raise HTTPException(429, "Texts come too fast; wait a few seconds.", {"Retry-After": "5"})
    if viewer.account:
        text = "\n".join(f"<{viewer.account}> {line}" for line in text.splitlines())
    # Who may speak on one channel must not use up the keys of another.
    own = f"say {place} {key or uuid4().hex}"
    await state.tendril.outbox.say("irc", str(place), text, key=own)
    return SaidText(channel=str(place), text=text)


def _messages(events: Iterable[Event]) -> list[LogMessage]:
    return [LogMessage.from_event(event) for event in events]
