"""The part of a channel's log that belongs to a question, and the lines in it that answer it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from llm.intents.question_text import is_about_talk, is_local
from llm.log_questions.answers import (
    MAX_QUOTED_LINES,
    PLAIN,
    RECENT_LEAD,
    Questioner,
    QuotedAnswer,
    Quoting,
    answer_about_log,
    nearest_lines,
)
from llm.threads.channel_threads import ChannelThreads
from llm.tools.semantic_search import SemanticIndex, nearest_events
from storage.chat_log.event import SPOKEN, Event, PendingEvent, Place, Scope
from storage.db.errors import StorageError
from storage.log import Query
from storage.passages.passages import PEOPLE, LineFilter
from storage.protocols import LogReader

_MAX_OWN_LINES = 3  # lines of the asker
_MAX_GROWTH = 2  # times the wanted lines, beyond which they start afresh
_MAX_RELATED = 10  # older lines, at most: they differ from prompt to prompt
_RECENT_LINES = 12  # lines that show what people are talking about
_MAX_NEAREST = 2  # lines near in meaning
_MAX_EVENTS = 5_000  # events read for one prompt

_log = structlog.get_logger()

PROGRESS = "still at it, one moment."
"""The bot's notice that an answer takes long; never shown in a prompt."""


@dataclass(frozen=True, slots=True)
class EventSlice:
    """Events to show, oldest first: all that may be shown, from the id `start` on."""

    start: int
    events: list[Event]

    def without(self, asked: Collection[int]) -> EventSlice:
        """Return the slice without the questions that are shown as turns (by event id), and without
        our answers to them."""
        turns = frozenset(asked)
        kept = [e for e in self.events if e.id not in turns and e.reply_to not in turns]
        return EventSlice(self.start, kept)


@dataclass(frozen=True, slots=True)
class WindowContents:
    """The part of the log that a prompt shows: the newest events, those `named` by their ids, and
    the speaker's `own` last words, each oldest first."""

    newest: EventSlice
    named: list[Event]
    own: list[Event]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogWindow:
    """The lines of `place` before the event `anchor`, which asks the question: the `last` lines by
    people, with all events between them. Prompts are made from a `settled` window.

    - `since` makes it the view of somebody who asks from elsewhere: all lines since then, read
      afresh for each question.
    - `speaker` is the nick of the asker; `threads` finds older lines that belong to their question.
    - `pending_event` is the question's event if that may not be written yet; `anchor` is then a
      lower bound of its id.
    - `quoting` is the style of quoted lines, `line_filter` says which are never quoted, `people`
      are the nicks that a question may name; `semantic_index`, if any, finds lines by meaning.
    """

    log: LogReader
    place: Place
    anchor: int
    last: int
    since: datetime | None = None
    speaker: str = ""
    threads: ChannelThreads | None = None
    pending_event: PendingEvent | None = None
    quoting: Quoting = PLAIN
    line_filter: LineFilter = PEOPLE
    people: Collection[str] = ()
    semantic_index: SemanticIndex | None = None

    def __repr__(self) -> str:
        place = f"{self.place.network}/{self.place.channel}"
        return f"<LogWindow {place}, {self.last} lines before {self.anchor}>"

    async def settled(self) -> LogWindow:
        """Return the window, once everything said before the question is in the log."""
        if self.pending_event is None:
            return self
        return replace(self, anchor=await self.pending_event.boundary_id() or self.anchor)

    async def question_event_id(self) -> int:
        """Return the id of the question's event, once that is in the log."""
        return (await self.pending_event.wait_visible() if self.pending_event else 0) or self.anchor

    async def lines(
        self, start: int, asked: Collection[int], named: Collection[int], *, own: bool
    ) -> WindowContents:
        """Return all events to show, from one snapshot of the log.

        The newest events start at the event `start` (0: not known yet) and grow until people have
        said twice the wanted number of lines; then they start afresh. Questions that are shown as
        turns (`asked`, by event id) do not count. In addition, return those of the `named` events
        that still exist and, with `own`, what the speaker said last.
        """
        # A `live` window continues from question to question; a view `since` a time does not.
        live, none_wanted = self.since is None, self.last == 0
        if not live:
            start = 0
        elif none_wanted:
            start = self.anchor
        elif start == 0:
            start = await self._first(asked)
        events, others, words = await self.log.for_model(
            self._from(start, 0 if live and none_wanted else _MAX_EVENTS),
            self._by_ids(named),
            self._own_words(_MAX_OWN_LINES if own and self.speaker and not none_wanted else 0),
        )
        # The start moves rarely and far, as the engine's prefix cache is lost whenever it moves.
        if live and sum(_is_shown(event, asked) for event in events) > _MAX_GROWTH * self.last:
            start = await self._first(asked)
        shown = [e for e in events if e.id >= start and not _is_progress(e)]
        return WindowContents(EventSlice(start, shown), others, words)

    async def newest(self, start: int, asked: Collection[int]) -> EventSlice:
        """Return the newest events only, see `lines`."""
        return (await self.lines(start, asked, (), own=False)).newest

    async def answer(self, question: str) -> QuotedAnswer | None:
        """Return the lines that answer a question, however old; None if the log has no answer.
        Raises Unavailable."""
        asking = Questioner(self.speaker, self.people)
        return await answer_about_log(
            self.log, question, self._before(), asking, self.quoting, self.line_filter
        )

    async def nearest(self, question: str) -> QuotedAnswer:
        """Return the lines nearest to a question that no line surely answers. Raises
        Unavailable."""
        within = self._before()
        near = await nearest_events(
            self.semantic_index, question, replace(within, limit=_MAX_NEAREST)
        )
        shown = await self.log.shown_to_model(near)
        return await nearest_lines(
            self.log, question, within, shown, self.quoting, self.line_filter
        )

    async def lately(self) -> QuotedAnswer | None:
        """Quote the last lines that people said, for a question about the current conversation;
        None if there are none."""
        said = [
            event
            for event in await self.recent(_RECENT_LINES)
            if not self.line_filter.leaves_out(event)
        ]
        if not said:
            return None
        return QuotedAnswer(RECENT_LEAD, tuple(said[-MAX_QUOTED_LINES:]), tuple(said), self.quoting)

    def _before(self) -> Query:
        return Query(scope=Scope.from_places(self.place), before_id=self.anchor)

    async def recent(self, limit: int) -> list[Event]:
        """Return the last `limit` lines that people said, oldest first."""
        query = replace(self._query(), types=SPOKEN, own=False, limit=limit)
        [said] = await self.log.for_model(query)
        return said

    async def find_related(self, text: str) -> list[int]:
        """Return the ids of a few older lines that belong to the speaker's question."""
        if self.threads is None or self.last == 0:
            return []
        most = min(self.last, _MAX_RELATED)
        return await self.threads.find_related(self.speaker, text, self.anchor, most)

    async def _first(self, asked: Collection[int]) -> int:
        """Return the id of the first of the `last` lines that people said."""
        # The asked questions are among the lines read, and do not count.
        limit = self.last + len(asked)
        query = replace(self._query(), types=SPOKEN, own=False, limit=limit)
        [said] = await self.log.for_model(query)
        wanted = [event for event in said if _is_shown(event, asked)][-self.last :]
        return wanted[0].id if wanted else self.anchor

    def _from(self, first: int, limit: int) -> Query:
        return replace(self._query(), after_id=first - 1, limit=limit)

    def _by_ids(self, ids: Collection[int]) -> Query:
        scope = Scope.from_places(self.place)
        return Query(scope=scope, before_id=self.anchor, ids=frozenset(ids), limit=len(ids))

    def _own_words(self, limit: int) -> Query:
        return Query(
            scope=Scope.from_places(self.place),
            before_id=self.anchor,
            types=SPOKEN,
            nick=self.speaker,
            limit=limit,
        )

    def _query(self) -> Query:
        scope = Scope.from_places(self.place)
        return Query(scope=scope, before_id=self.anchor, since=self.since)


def _is_shown(event: Event, asked: Collection[int]) -> bool:
    """Return whether an event counts as a line: said by a person, and not shown as a turn."""
    return event.type in SPOKEN and not event.own and event.id not in asked


def _is_progress(event: Event) -> bool:
    """Return whether an event is the notice that an answer takes long."""
    return event.own and event.text.endswith(PROGRESS)


async def quoted_answer(log_window: LogWindow, question: str) -> QuotedAnswer | None:
    """Return the log lines that answer a question, or the nearest ones if only people here can know
    the answer. None if the log has nothing to do with it, or cannot be read."""
    try:
        if is_about_talk(question):
            return await log_window.lately()
        found = await log_window.answer(question)
        if found is None and is_local(question, log_window.people):
            return await log_window.nearest(question)
    except StorageError as error:  # the model is then asked without these lines
        _log.warning("turn.not_searched", error=str(error))
        return None
    return found
