"""The part of a channel's log that belongs to a question, and the lines in it that answer it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

import structlog

from llm.log_questions import (
    MAX_QUOTED_LINES,
    PLAIN,
    RECENT_LEAD,
    LogAnswers,
    QuotedAnswer,
    Quoting,
    log_question,
)
from llm.messages.message import MERGED_TYPES, render_answer, render_line, render_membership
from llm.reading.reading import ABOUT_LOG, ABOUT_TALK, FROM_HERE, NOT_ASKED, OF_WORLD, Reading
from llm.retrieval import Retrieval
from storage.chat_log import statistics
from storage.chat_log.event import SPOKEN, Event, PendingEvent, Place, Scope
from storage.db.database import from_micros
from storage.db.errors import StorageError
from storage.log import ChatLog, Query
from storage.passages.passages import PEOPLE, LineFilter

_MAX_GROWTH = 10 / 3  # times the wanted lines by people, beyond which a window starts afresh
_MAX_EVENTS = 20_000  # events read for one prompt
_LONGEST_SHARE = 8  # the divisor of the window's size that gives the longest answer shown whole
_LIKELY = 0.65  # score from which a line is shown for a question that hardly is of this place
_NEAR = 0.25  # score from which a line may answer what is rather a question about the world
_PERHAPS_HERE = 0.1  # probability of a question of this place, below which it may not
_HARDLY_HERE = 0.02  # the same for a line that surely answers
_MAX_PASTED = 50  # lines
_PASTE_GAP = timedelta(seconds=2)  # the longest between two lines of a text that a client sends
_MOST_NICKS = 200  # people of whom one may be meant by a short name
_MIN_SHORT_NAME = 3  # letters
_RECENT_LINES = 12  # lines that show what people are talking about

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WindowLine:
    """A line of the log as a prompt shows it, with the id of its (first) event.

    Its `text` has several lines, all but the first indented, if it is an answer of ours in full;
    `answers` is then the id of the question's event. `said` is the text without time and nick.
    `is_said` is true of what people said.
    """

    id: int
    text: str
    said: str = ""
    is_said: bool = False
    answers: int = 0


Answers = Callable[[Collection[int]], Awaitable[Mapping[int, str]]]
"""Returns our whole answers to questions, by the ids of their events."""

WindowStarts = dict[tuple[Place, int], int]
"""Where the window of each place begins, for prompts of so many characters: an event id."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogWindow:
    """The lines of `place` before the event `anchor`, which asks the question: the `last` lines by
    people or more, with all events between them. Prompts are made from a `settled` window.

    - `since` makes it the view of somebody who asks from elsewhere: all lines since then, read
      afresh for each question.
    - `scope` makes it the view of somebody who asks outside the log, in a browser: lines of it are
      quoted, none is shown beside the question.
    - `starts` is shared by all windows of the process: everybody who asks in a place is shown the
      same lines, so that their prompts share a prefix.
    - `speaker` is the nick of the asker.
    - `pending_event` is the question's event if that may not be written yet; `anchor` is then a
      lower bound of its id.
    - `quoting` is the style of quoted lines, with the time zone of all lines; `line_filter` says
      which are never quoted, `people` are the nicks that a question may name; `retrieval` finds
      lines, by words alone if it is None.
    """

    log: ChatLog
    place: Place
    anchor: int
    last: int
    since: datetime | None = None
    scope: Scope | None = None
    speaker: str = ""
    starts: WindowStarts = field(default_factory=dict)
    pending_event: PendingEvent | None = None
    quoting: Quoting = PLAIN
    line_filter: LineFilter = PEOPLE
    people: Collection[str] = ()
    retrieval: Retrieval | None = None

    def __repr__(self) -> str:
        place = f"{self.place.network}/{self.place.channel}"
        return f"<LogWindow {place}, {self.last} lines before {self.anchor}>"

    async def settled(self) -> LogWindow:
        """Return the window, once everything said before the question is in the log."""
        if self.pending_event is None:
            return self
        return replace(self, anchor=await self.pending_event.boundary_id() or self.anchor)

    async def question_event_id(self) -> int:
        """Return the id of the question's event, once that is in the log; 0 if it never is."""
        if self.scope is not None:
            return 0
        return (await self.pending_event.wait_visible() if self.pending_event else 0) or self.anchor

    async def lines(self, characters: int, answers: Answers) -> list[WindowLine]:
        """Return the lines to show, oldest first, in at most so many characters.

        The window only grows at its end, so that the engine's prefix cache stays valid, until it is
        full or people have said more than three times the `last` lines in it. Then it starts
        afresh, with the `last` lines by people, in half of the characters. Raises StorageError.
        """
        if self.last == 0 or characters <= 0:
            return []
        key = self.place, characters
        live = self.since is None
        start = self.starts.get(key, 0) if live else 0
        if live and not start:
            people = await self.recent(self.last)
            start = people[0].id if people else self.anchor
        # Read before what may be larger than the window, in one snapshot.
        query = replace(self._query(), after_id=start - 1 if start else None, limit=_MAX_EVENTS)
        [events] = await self.log.for_model(query)
        asked = {event.reply_to for event in events if event.own and event.reply_to}
        found = list(self._render(events, await answers(asked), characters // _LONGEST_SHARE))
        said, size = sum(line.is_said for line in found), sum(len(line.text) + 1 for line in found)
        if size > characters or (live and said > _MAX_GROWTH * self.last):
            said, size = (self.last, characters // 2) if live else (said, characters)
            kept: list[WindowLine] = []
            for line in reversed(found):
                size -= len(line.text) + 1
                said -= line.is_said
                if size < 0 or said < 0:
                    break
                kept.append(line)
            found = kept[::-1]
        if live:
            self.starts[key] = found[0].id if found else self.anchor
        return found

    def _render(
        self, events: Sequence[Event], answers: Mapping[int, str], longest: int
    ) -> Iterator[WindowLine]:
        """Yield the events as lines. Our answers stand in full where their first line was said;
        further pages of one are left out."""
        by_id, zone = {event.id: event for event in events}, self.quoting.zone
        shown: set[int] = set()
        for merged, group in groupby(events, key=lambda event: event.type in MERGED_TYPES):
            if merged:
                together = list(group)
                yield WindowLine(together[0].id, render_membership(together))
                continue
            for event in group:
                question = event.reply_to or 0
                if not event.own:
                    text, is_said = render_line(event, zone), event.type in SPOKEN
                    yield WindowLine(event.id, text, event.text, is_said)
                elif question in answers and question not in shown:
                    shown.add(question)
                    text = render_answer(event, answers[question], longest, zone)
                    yield WindowLine(event.id, text, answers[question], answers=question)
                elif question not in answers:
                    asked = by_id[question].text if question in by_id else ""
                    command = asked.removeprefix(self.line_filter.prefix)
                    if command.strip().lower() != "more":
                        yield WindowLine(event.id, render_line(event, zone), event.text)

    async def answer(self, reading: Reading, before: str = "") -> QuotedAnswer | None:
        """Return the lines that answer a question, or may answer it, however old; None if the log
        has none. `before` is the question that it follows up. Raises Unavailable."""
        slots, question = reading.slots, None
        if reading.is_one_of(ABOUT_LOG):
            person = slots.person or await self.nick_in(slots.names)
            question = log_question(reading, person)
        retrieval = self.retrieval or Retrieval(self.log)
        answers = LogAnswers(retrieval, self.before(), self.quoting, self.line_filter)
        vector = None if before else reading.vector or None
        return await answers.answer(f"{before} {reading.text}".strip(), question, vector)

    async def last_question(self) -> str:
        """Return what we were last asked here, by anybody, "" if that is many lines ago: a channel
        talks with us together, and what one asks another follows up. Raises StorageError."""
        said = [] if self.scope is not None else await self.recent(_RECENT_LINES)
        asked = [line.text.partition(" ")[2] for line in said if self.line_filter.is_for_bot(line)]
        return next(filter(None, map(str.strip, reversed(asked))), "")

    async def pasted(self) -> list[Event]:
        """Return what the asker has said right after the question, as far as it is in the log: the
        further lines of a text that they pasted. What is said to us is none of them.

        Raises StorageError.
        """
        asked = await self.pending_event.wait_visible() if self.pending_event else 0
        if not asked:
            return []
        said = Query(
            scope=Scope.from_places(self.place),
            after_id=asked,
            nick=self.speaker,
            types=SPOKEN,
            own=False,
            limit=_MAX_PASTED,
        )
        found = await self.log.find(said, newest=False)
        lines: list[Event] = []
        last = from_micros(asked * 1_000)  # ids of the log follow time
        for line in await self.log.shown_to_model(found):
            if self.line_filter.is_for_bot(line) or line.time - last > _PASTE_GAP:
                break
            lines.append(line)
            last = line.time
        return lines

    async def nick_in(self, names: Iterable[str]) -> str:
        """Return the nick of somebody who has spoken here and is called by the first possible of
        these names, as "bevbaton" by "bev"; "" if there is none. Raises Unavailable."""
        tried = tuple(names)
        for name in tried:
            query = replace(self.before(), nick=name, types=SPOKEN, own=False, limit=1)
            if (await self.log.for_model(query))[0]:
                return name
        stats = await self.log.read(statistics.stats, self.before(), top=_MOST_NICKS)
        nicks = [nick for nick, _ in stats.top]
        for name in map(str.casefold, tried):
            called = [nick for nick in nicks if nick.casefold().startswith(name)]
            called = called or [nick for nick in nicks if nick.casefold().endswith(name)]
            if len(name) >= _MIN_SHORT_NAME and len(called) == 1:
                return called[0]
        return ""

    def time_of_question(self) -> datetime:
        """Return the time of the question."""
        return from_micros(self.anchor * 1_000)  # ids of the log follow time

    async def lately(self) -> QuotedAnswer | None:
        """Quote the last lines of people for a question about the conversation, if any."""
        said = [
            event
            for event in await self.recent(_RECENT_LINES)
            if not self.line_filter.leaves_out(event)
        ]
        if not said:
            return None
        quotes = tuple((event,) for event in said[-MAX_QUOTED_LINES:])
        return QuotedAnswer(RECENT_LEAD, quotes, tuple(said), self.quoting)

    def before(self) -> Query:
        """Return the query for all that was said before the question, in the place or the scope."""
        scope = Scope.from_places(self.place) if self.scope is None else self.scope
        return Query(scope=scope, before_id=self.anchor)

    async def recent(self, limit: int) -> list[Event]:
        """Return the last `limit` lines that people said, oldest first."""
        query = replace(self._query(), types=SPOKEN, own=False, limit=limit)
        [said] = await self.log.for_model(query)
        return said

    def _query(self) -> Query:
        return replace(self.before(), since=self.since)


async def quoted_answer(log_window: LogWindow, reading: Reading) -> QuotedAnswer | None:
    """Return the log lines that answer a question, or may answer it if only people here can know
    the answer. None if the log has nothing to do with it, or cannot be read."""
    if reading.is_one_of(NOT_ASKED):
        return None
    try:
        before = await log_window.last_question() if reading.follows_up else ""
        found = await log_window.answer(reading, before)
        if found is None and reading.is_one_of(ABOUT_TALK):
            return await log_window.lately()
    except StorageError as error:  # the model is then asked without these lines
        _log.warning("turn.not_searched", error=str(error))
        return None
    # What was asked before tells whether a question that follows it is about the place.
    if found is None or before or found.is_about_log:
        return found
    is_likely = found.score >= _LIKELY
    kinds = OF_WORLD if is_likely else OF_WORLD | {"howto"}
    if reading.kind and not reading.is_one_of(kinds):
        return found
    # "which mirror is faster?" may be answered here, though it reads like one about the world; but
    # no word of "from where again?" or "how many continents are there?" is about this place.
    if is_likely:
        is_shown = not reading.kind or reading.is_one_of(FROM_HERE, _HARDLY_HERE)
    else:
        is_shown = found.score >= _NEAR and reading.is_one_of(FROM_HERE, _PERHAPS_HERE)
    return found if is_shown else None
