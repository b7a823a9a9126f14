"""Commands about the log of a room: search and statistics."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Generic

from harnesses.core.commands.request import Medium, R
from harnesses.core.text import counted
from llm.messages.message import QuotingText, ShownText
from storage.chat_log import statistics
from storage.chat_log.event import Event
from storage.chat_log.event_table import Query
from storage.passages.passages import LineFilter
from storage.passages.words import asks
from storage.search.models import Order, SearchQuery

_SHOWN = 3  # lines of a search
_LOOKED_AT = 30  # lines that are fetched, as commands among them are left out


class LogCommands(Generic[R]):
    """The commands; `known` has the names of those of all kinds."""

    def __init__(self, medium: Medium[R], known: Container[str]) -> None:
        self._medium, self._known = medium, known

    async def search(self, request: R) -> str:
        """search WORDS: find lines of this channel"""
        medium = self._medium
        if not request.words:
            return f"Search for what? {medium.prefix(request.place)}search WORDS"
        # In this order: the line that surely answers, lines with the words, lines that may answer,
        # lines near in meaning. The line of this command has the words as well; hence `before`.
        before = await request.pending_event.wait_visible() or None
        within = Query(scope=request.scope, own=False, before_id=before, limit=_LOOKED_AT)
        log, (nick, *_) = medium.tendril.log, medium.nicks(request)
        line_filter = LineFilter(prefix=medium.prefix(request.place), nicks=(nick,))
        answers = await log.retrieval.answers(
            request.words, replace(within, limit=_SHOWN), line_filter
        )
        if answers.is_sure:
            return self._quote(request, [], [answers.passages[0].event])
        page = await log.chat_log.search(
            SearchQuery(text=request.words, within=within, order=Order.TIME)
        )
        hits = [hit.event for hit in reversed(page.hits)]
        found = [event for event in hits if not self._is_command(event, request)]
        if found and not answers.passages:
            return self._quote(request, [], found[-_SHOWN:])
        if answers.passages:
            return self._quote(request, ["Perhaps:"], [each.event for each in answers.passages])
        meant = await log.retrieval.near(request.words, within)
        events = [hit.event for hit in meant.hits] if meant else []
        near = [event for event in events if not self._is_command(event, request)][:_SHOWN]
        if not near:
            return "Nothing found."
        return self._quote(request, ["Nobody wrote that; near in meaning:"], near)

    async def stats(self, request: R) -> str:
        """stats: how much is said here, and by whom"""
        await request.pending_event.wait_visible()
        medium = self._medium
        stats = await medium.tendril.log.chat_log.read(
            statistics.stats, Query(scope=medium.home(request), own=False)
        )
        top = ", ".join(f"{medium.shown_nick(nick)} {count:,}" for nick, count in stats.top)
        since = f" since {stats.first:%Y-%m-%d}" if stats.first else ""
        lines, people = counted(stats.lines, "line"), counted(stats.people, "person", "people")
        return f"{lines} by {people}{since}" + (f"; most by {top}" if stats.people > 1 else "")

    def _is_command(self, event: Event, request: R) -> bool:
        """Return whether a line is a command or a question to us, which nobody searches for."""
        nicks = self._medium.nicks(request) if asks(event.text) else ()
        found = self._medium.parse(event.text, nicks, request)
        return found is not None and found.command in self._known

    def _quote(self, request: R, lead: Sequence[str], events: Sequence[Event]) -> QuotingText:
        """Return lines for people, with the channels of those that were said elsewhere."""
        here, shown_nick = request.fold(request.place.channel), self._medium.shown_nick
        zone = self._medium.tendril.agent.zone  # as in answers
        lines = (
            f"[{event.time.astimezone(zone):%Y-%m-%d %H:%M}]"
            f"{'' if request.fold(event.channel) == here else f' {event.channel}'}"
            f" <{shown_nick(event.nick)}> {event.text}"
            for event in events
        )
        return QuotingText("\n".join([*lead, *lines]), map(ShownText.from_event, events))
