"""Tools over the chat log within a scope: search, whole spans, people, channels.

All times are in one zone. Wherever one is given, the number of a line is accepted too: the notes of
long results name one to go on with, as several lines may have the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from llm.messages.message import (
    QuotingText,
    ShownText,
    escape_tags,
    render_answer,
    render_line,
    stamp,
)
from llm.retrieval import Retrieval
from llm.tools.toolbox import ResultLength, ToolError, tool
from storage.chat_log import statistics
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import SPOKEN, Event, EventType, PendingEvent, Place, Scope
from storage.log import ChatLog, Query
from storage.passages.passages import MAX_COUNTED, PEOPLE, LineFilter, Mentions, find_mentions
from storage.passages.words import asks
from storage.search.models import SearchQuery
from storage.search.query_parser import ParsedQuery, TermKind, parse

_MAX_LINES = 100  # lines of a search
_MAX_MATCHES = 200  # lines that a search with operators counts
_MAX_SEMANTIC = 6  # lines near in meaning
# The share of the best line's score that a line with only some of the words needs: if some line
# has all of them, and if none has.
_MIN_SHARE, _MIN_SHARE_OF_SOME = 0.5, 0.25
_NOTE_LENGTH = 200  # characters that are kept free for headings and notes
_SHORTEST_LINE = 30  # characters
_PRIVATE = "(private)"  # the name of a private conversation
_DAY = timedelta(days=1)
_RECENT_LINES = 500  # lines in which recent speakers are looked for

_COMING = frozenset({EventType.JOIN, EventType.PART, EventType.QUIT})
_READ = frozenset(EventType) - _COMING

Present = Callable[[], Mapping[Place, Sequence[str]]]
"""Returns the nicks that are in each place now."""

Answers = Callable[[Sequence[Event]], Awaitable[Mapping[int, str]]]
"""Returns the whole answers that these events are lines of, by the ids of the questions."""


def _moment(given: object, *, is_end: bool = False) -> object:
    """Parse a time in the form of rendered lines, without a zone unless it has an offset, or the
    number of a line. A day alone stands for its end if `is_end`. Raises ValueError."""
    text = str(given).strip().strip("[]") if given is not None else ""
    if not text:
        return None
    if text.isdecimal() and len(text) > len("20260301"):
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("write a time as 2026-03-01 12:00:00") from error
    is_day = len(str(given).strip()) == len("2026-03-01")
    return found + _DAY if is_end and is_day else found


Bound = datetime | int | None
"""A time, or the number of a line."""

_TEXT = WithJsonSchema({"type": "string", "maxLength": 40})
Moment = Annotated[Bound, BeforeValidator(_moment), _TEXT]
End = Annotated[Bound, BeforeValidator(partial(_moment, is_end=True)), _TEXT]
Channel = Annotated[str, Field(max_length=200, description="only this channel")]


class LogSearch(BaseModel):
    """The arguments of a search of the log."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[
        str,
        Field(
            max_length=300,
            description="words or a question; lines with any of the words are found, those with"
            ' most first. Exact: "a phrase", path/file.conf, one or other, -without, begin*',
        ),
    ] = ""
    channel: Channel = ""
    nick: Annotated[str, Field(max_length=64, description="only what they said")] = ""
    after: Annotated[
        Moment, Field(description="only from then on: 2026-03-01 12:00:00, or a line's number")
    ] = None
    before: Annotated[Moment, Field(description="only before then")] = None
    around: Annotated[
        Moment, Field(description="the lines around then; with a query, within a day of it")
    ] = None
    limit: Annotated[int, Field(ge=1, le=_MAX_LINES, description="most lines")] = 20
    own: Annotated[bool, Field(description="also your own lines, and what people said to you")] = (
        False
    )


_Block = tuple[str, Sequence[Event]]  # a heading, and the lines below it, the best first


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTools:
    """Tools over `log`, limited to `scope` and to the events before `before`, the question itself,
    which may still be pending.

    The bot's own lines, and those that `line_filter` leaves out, such as commands, are searched
    only on request. `link` returns the permalink of a line, None if there is none. `present`
    returns who is in the places of the scope now; None where that is not known. When no line has
    all words, `retrieval` finds those near in meaning, if given. `answers` returns those of ours of
    which the channel saw the beginning only, if they are known. `zone` is that of all times.
    """

    log: ChatLog
    scope: Scope
    before: int | PendingEvent | None = None
    line_filter: LineFilter = PEOPLE
    link: Callable[[Event], str | None] = lambda _: None
    present: Present | None = None
    retrieval: Retrieval | None = None
    answers: Answers | None = None
    zone: tzinfo = UTC

    @tool(reads=True, research=True, activity="searching the log for {query}", links="quoted")
    async def search_log(self, asked: LogSearch, most: ResultLength) -> QuotingText:
        """Search what was said on the channels that the person who asks may read. The best lines
        are shown in order of time, with the count of all; without a query the newest. Times are
        in the zone of <now>."""
        after, before = asked.after, asked.before
        if asked.around and asked.query:
            middle = await self._time(asked.around)
            after, before = middle - _DAY, middle + _DAY
        within = await self._within(asked.channel, after, before)
        within = replace(within, nick=asked.nick or None, limit=asked.limit, types=SPOKEN)
        if asked.query.strip():
            within = replace(within, own=None if asked.own else False)
            return await self._search(
                asked.query, within, replace(self.line_filter, own=asked.own), most
            )
        if asked.around:
            middle, half = await self._time(asked.around), asked.limit // 2
            earlier = await self.log.find(replace(within, until=middle, limit=half))
            later = replace(within, since=middle, limit=asked.limit - half)
            found = [*earlier, *await self.log.find(later, newest=False)]
            shown = await self.log.shown_to_model(found)
            nearest = sorted(shown, key=lambda event: abs(event.time - middle))
            return self._render([("", nearest)], most)
        (events,) = await self.log.for_model(within)
        older = f"(older ones: before={events[0].id})" if len(events) == asked.limit else ""
        return self._render([("", events[::-1])], most, older)

    @tool(reads=True, research=True, activity="reading the log", links="quoted")
    async def read_log(
        self,
        most: ResultLength,
        since: Annotated[
            Moment, Field(alias="from", description="2026-03-01 12:00:00, or the number of a line")
        ] = None,
        until: Annotated[
            End, Field(alias="to", description="the same; a day alone is included")
        ] = None,
        channel: Channel = "",
    ) -> QuotingText:
        """Read all that was said in a span of time, in order, your own long answers in full, as
        much as fits: from its beginning, or, without `from`, its end. Times are in the zone of
        <now>."""
        query = await self._within(channel, since, until)
        is_forward = since is not None
        query = replace(query, types=_READ, limit=most // _SHORTEST_LINE + 1)
        found = await self.log.find(query, newest=not is_forward)
        read = await self.log.shown_to_model(found)
        answers = await self.answers(read) if self.answers else {}
        # Of each whole answer of ours only the first line, with the answer by its id.
        events: list[Event] = []
        whole: dict[int, str] = {}
        told: set[int] = set()
        for event in read:
            question = event.reply_to if event.own else None
            if question is None or question not in answers:
                events.append(event)
            elif question not in told:
                told.add(question)
                events.append(event)
                whole[event.id] = answers[question]
        events = events if is_forward else events[::-1]
        lines: list[str] = []
        room = most - _NOTE_LENGTH
        for event in events:
            answer = whole.get(event.id)
            line = self._line(event)
            if answer is not None:
                line = self._where(event) + render_answer(event, answer, most // 2, self.zone)
            room -= len(line) + 1
            if room < 0 and lines:
                break
            lines.append(line)
        left, note = events[len(lines) :], ""
        if is_forward and (left or len(found) == query.limit):
            note = f"(more follows; go on with from={left[0].id if left else found[-1].id + 1})"
        elif left or len(found) == query.limit:
            last = events[len(lines) - 1].id if left else found[0].id
            note = f"(more before that; go on with to={last})"
        text = "\n".join(filter(None, [*(lines if is_forward else lines[::-1]), note]))
        shown = (
            replace(ShownText.from_event(event), text=whole.get(event.id, event.text))
            for event in events[: len(lines)]
        )
        return QuotingText(text or "nothing was said then", shown)

    @tool(reads=True, links="quoted")
    async def people(
        self, nick: Annotated[str, Field(max_length=64, description="one person")] = ""
    ) -> str:
        """Tell who is here now; or, of one person, if they are, when they were last seen, what they
        said last, how many lines they wrote, and where."""
        here = self.present() if self.present else None
        if nick:
            who, name = nick.casefold(), escape_tags(nick)
            query = Query(scope=self.scope, nick=nick, limit=1)
            said, came = await self.log.for_model(
                replace(query, types=SPOKEN), replace(query, types=_COMING)
            )
            lines = []
            if here is not None:
                places = [self._name(p) for p, n in here.items() if who in map(str.casefold, n)]
                lines.append(f"{name} is now in: {', '.join(places) or 'none of the channels'}")
            lines += [f"said last: {self._line(event)}" for event in said]
            lines += [f"came or went last: {self._line(event)}" for event in came]
            # The counters know no opt-outs: if the last line is not shown, nothing is told.
            stats = await self.log.read(statistics.person, self.scope, nick) if said else None
            if stats is None:
                lines.append(f"no line of {name} is known here")
            else:
                where = ", ".join(f"{self._name(place)} {count:,}" for place, count in stats.places)
                first = stats.first.astimezone(self.zone)
                lines.append(f"{_lines(stats.lines)} since {first:%Y-%m-%d}: {where}")
            return _quoting("\n".join(lines), [*said, *came])
        if here:
            return "\n".join(
                f"{self._name(place)}: {', '.join(map(escape_tags, nicks))}"
                for place, nicks in here.items()
            )
        (said,) = await self.log.for_model(
            Query(scope=self.scope, types=SPOKEN, own=False, limit=_RECENT_LINES)
        )
        last = {event.nick: event.time for event in said}  # in order of time: the last one wins
        told = ", ".join(
            f"{escape_tags(who)} {stamp(time, self.zone)}" for who, time in last.items()
        )
        return f"who is there now is not known here; last lines: {told or 'none'}"

    @tool(reads=True)
    async def channels(self) -> str:
        """List the channels whose log the person who asks may read here."""
        found = await self.log.read(statistics.channels, self.scope)
        lines = (
            f"{self._name(each.place)}: {each.events:,} events"
            + (f", the last {stamp(each.last_time, self.zone)}" if each.last_time else "")
            for each in found
        )
        return "\n".join(lines) or "none"

    async def _search(
        self, text: str, within: Query, line_filter: LineFilter, most: ResultLength
    ) -> QuotingText:
        """Return the lines that match a query: exactly if it has operators, else by its words."""
        wanted = parse(text, now=datetime.now(UTC))
        has_filters = wanted != ParsedQuery(clauses=wanted.clauses)
        narrows = has_filters or any(clause.exclude for clause in wanted.clauses)
        is_plain = len(wanted.clauses) == 1 and all(t.kind is TermKind.WORD for t in wanted.terms)
        is_exact = not asks(text) and (narrows or not is_plain)
        if is_exact and (found := await self._matching(text, within, line_filter, most)):
            return found
        none = _quoting(f"no line matches: {escape_tags(text)}")
        if is_exact and narrows:
            return none
        mentions = await self.log.read(find_mentions, text, within, line_filter)
        if not mentions.words:  # none but the most frequent words
            return await self._matching(text, within, line_filter, most) or none
        blocks = _blocks(mentions)
        if not mentions.count:
            retrieval = self.retrieval or Retrieval(self.log)
            page = await retrieval.near(text, replace(within, limit=_MAX_SEMANTIC))
            near = [hit.event for hit in page.hits] if page else []
            known = {each.event.id for each in mentions.found.items}
            near = [e for e in near if not line_filter.leaves_out(e) and e.id not in known]
            blocks += [("nearest in meaning:", near)] if near else []
        complete = [each.event.id for each in mentions.found.items if each.has_all]
        notes = []
        if len(complete) >= within.limit and mentions.count > within.limit:
            notes.append(f"(older ones with all: before={min(complete)})")
        if reached := mentions.found.searched_back_to:
            notes.append(f"(searched back to {stamp(reached, self.zone)} only)")
        return self._render(blocks, most, "\n".join(notes))

    async def _matching(
        self, text: str, within: Query, line_filter: LineFilter, most: ResultLength
    ) -> QuotingText | None:
        """Return the lines that match a query with operators, None if there are none."""
        reading = replace(within, limit=_MAX_MATCHES)
        page = await self.log.search_for_model(SearchQuery(text=text, within=reading))
        events = [hit.event for hit in page.hits if not line_filter.leaves_out(hit.event)]
        if not events:
            return None
        has_more = page.next_cursor is not None
        note = f"(older ones: before={min(event.id for event in events)})" if has_more else ""
        shown = f", the best {within.limit}" if len(events) > within.limit else ""
        heading = f"{_lines(len(events), at_least=has_more)} found{shown}:"
        return self._render([(heading, events[: within.limit])], most, note)

    async def _within(self, channel: str, after: Bound, before: Bound) -> Query:
        """Return the query for a channel and a span. Raises ToolError for an unknown channel."""
        anchor = self.before.id if isinstance(self.before, PendingEvent) else self.before
        ends = [each for each in (anchor, before) if isinstance(each, int) and each]
        named = ChannelName.parse(channel)
        if named:
            known = [each.place for each in await self.log.read(statistics.channels, self.scope)]
            # Its name may lack the sign, or be that of the only private conversation.
            tried = [named, replace(named, channel=f"#{named.channel}")]
            private = [place for place in known if self._name(place) == _PRIVATE]
            if channel == _PRIVATE and len(private) == 1:
                tried = [ChannelName(private[0].network, private[0].channel)]
            fitting = (
                name
                for name in tried
                for place in known
                if name.network in (None, place.network)
                and place.channel.casefold() == name.channel.casefold()
            )
            named = next(fitting, None)
            if named is None:
                there = ", ".join(map(self._name, known)) or "none"
                raise ToolError(
                    f"channel: there is none of this name to be read; there are: {there}"
                )
        return Query(
            scope=self.scope,
            since=self._aware(after) if isinstance(after, datetime) else None,
            after_id=after - 1 if isinstance(after, int) else None,
            until=self._aware(before) if isinstance(before, datetime) else None,
            before_id=min(ends, default=None),
        ).in_channel(named)

    async def _time(self, bound: datetime | int) -> datetime:
        """Return a time, or that of a line. Raises ToolError if there is no such line."""
        if isinstance(bound, datetime):
            return self._aware(bound)
        event = await self.log.get(self.scope, bound)
        if event is None:
            raise ToolError("around: there is no such line")
        return event.time

    def _aware(self, time: datetime) -> datetime:
        return time if time.tzinfo else time.replace(tzinfo=self.zone)

    def _render(self, blocks: Iterable[_Block], most: ResultLength, note: str = "") -> QuotingText:
        """Render the best lines of blocks that fit, in order of time, then a note."""
        room, left_out = most - _NOTE_LENGTH, 0
        parts: list[str] = []
        quoted: list[Event] = []
        for heading, events in blocks:
            shown: dict[int, str] = {}
            for event in events:
                line = self._line(event, self.link(event))
                room -= len(line) + 1
                if room >= 0 or not (parts or shown):
                    shown[event.id] = line
                    quoted.append(event)
                else:
                    left_out += 1
            if shown or not events:
                parts += [heading, *(shown[each] for each in sorted(shown))]
        if left_out:
            note = f"{note}\n(left out for lack of room: {left_out} of the best lines)".strip()
        return _quoting("\n".join(filter(None, [*parts, note])) or "nothing found", quoted)

    def _line(self, event: Event, link: str | None = None) -> str:
        """Render a line for the model, with its channel if the scope has several."""
        return f"{self._where(event)}{render_line(event, self.zone)}{f'  {link}' if link else ''}"

    def _where(self, event: Event) -> str:
        one_place = self.scope.places is not None and len(self.scope.places) == 1
        return "" if one_place else f"{self._name(Place(event.network, event.channel))} "

    def _name(self, place: Place) -> str:
        """Return the name of a place as `channel` takes it."""
        if not ChannelName(None, place.channel).is_channel:
            return _PRIVATE
        networks = {each.network for each in self.scope.places or ()}
        return escape_tags(place.channel if len(networks) == 1 else str(place))


def _quoting(text: str, events: Iterable[Event] = ()) -> QuotingText:
    """Return a result with the lines that it quotes, which an erasure follows."""
    return QuotingText(text, map(ShownText.from_event, events))


def _blocks(mentions: Mentions) -> list[_Block]:
    """Return the lines with all words of a query, and those with some of them."""
    words = escape_tags(", ".join(mentions.words))
    all_of = "all of: " if len(mentions.words) > 1 else ""
    items, heading = mentions.found.items, f"no line has {all_of}{words}"
    if mentions.count:
        count = _lines(mentions.count, at_least=mentions.count == MAX_COUNTED)
        heading = f"{count} with {all_of}{words}"
    elif all_of:
        counts = (
            f'"{escape_tags(word)}" alone: {_lines(count)}'
            for word, count in zip(mentions.words, mentions.alone, strict=True)
        )
        heading += f"; {', '.join(counts)}"
    share = _MIN_SHARE if mentions.count else _MIN_SHARE_OF_SOME
    least = share * items[0].score if items else 0.0
    some = [each.event for each in items if not each.has_all and each.score >= least]
    return [
        (heading, [each.event for each in items if each.has_all]),
        *([("with some of them:", some)] if some else []),
    ]


def _lines(count: int, *, at_least: bool = False) -> str:
    return f"{count:,}{' or more' if at_least else ''} line{'s' if count != 1 else ''}"
