"""Tools that search the chat log within a scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from llm.messages.message import escape_tags, render_line, stamp
from llm.messages.quotes import QuotingText, ShownText
from llm.tools.semantic_search import SemanticIndex, nearest_events
from llm.tools.toolbox import ToolError, tool
from storage.chat_log.event import Event, PendingEvent, Scope
from storage.log import Query
from storage.passages.passages import PEOPLE, LineFilter
from storage.passages.words import asks, question_words
from storage.protocols import LogReader
from storage.search.models import Order, SearchQuery

_DEFAULT_LIMIT = 20  # lines in a result
_MAX_LIMIT = 100
_MAX_SEMANTIC = 6  # lines of a semantic search
_OVERFETCH = 2  # overfetch factor: commands and the like are filtered out after the query


class LogTools:
    """Tools over `log`, limited to `scope` and to the events before `before`, the question itself,
    which may still be pending.

    The bot's own lines and those that `line_filter` leaves out, such as commands, are not returned.
    When full-text search finds nothing, `semantic_index` is searched, if given.
    """

    def __init__(
        self,
        log: LogReader,
        scope: Scope,
        before: int | PendingEvent | None = None,
        semantic_index: SemanticIndex | None = None,
        line_filter: LineFilter = PEOPLE,
    ) -> None:
        self._log = log
        self._scope = scope
        self._before = before
        self._semantic_index = semantic_index
        self._line_filter = line_filter

    @tool(reads=True, research=True, links="quoted")
    async def search_chat_logs(
        self,
        query: Annotated[
            str,
            Field(
                max_length=200,
                description='words that a line must have; also "a phrase", or, -without;'
                " or a whole question",
            ),
        ] = "",
        user: Annotated[str, Field(max_length=64, description="nick who said it")] = "",
        hours: Annotated[int, Field(ge=0, le=87_600, description="how far back; 0: all")] = 0,
        limit: Annotated[
            int, Field(ge=1, le=_MAX_LIMIT, description="most lines")
        ] = _DEFAULT_LIMIT,
        before: Annotated[
            str,
            Field(max_length=32, description="only lines before this time, YYYY-MM-DD HH:MM:SS"),
        ] = "",
    ) -> QuotingText:
        """Search the chat log for lines that were said earlier than those you see."""
        until = _moment(before)
        if before and until is None:
            raise ToolError("before: that is no time; write it as 2026-03-01 12:00:00")
        anchor = self._before.id if isinstance(self._before, PendingEvent) else self._before
        within = Query(
            scope=self._scope,
            before_id=anchor or None,
            nick=user or None,
            own=False,
            since=datetime.now(UTC) - timedelta(hours=hours) if hours else None,
            until=until,
            limit=limit,
        )
        if asks(query) and question_words(query).words:
            return self._rendered(await self._passages(query, within))
        lines = await self._by_words(query, within)
        return self._rendered(lines or await self._semantic(query, within) or ["nothing found"])

    async def _by_words(self, query: str, within: Query) -> list[Event | str]:
        """Return the newest lines that match a full-text query, in chronological order.

        Notes follow if there are more results, or if the search ran out of time.
        """
        reading = replace(within, limit=_OVERFETCH * within.limit)
        page = await self._log.search_for_model(
            SearchQuery(text=query, within=reading, order=Order.TIME)
        )
        events = [hit.event for hit in page.hits if not self._line_filter.leaves_out(hit.event)]
        lines: list[Event | str] = [*events[: within.limit][::-1]]
        if len(events) > within.limit or page.next_cursor is not None:
            oldest = events[: within.limit][-1:]
            lines += [f"(more before {stamp(event.time)})" for event in oldest]
        if page.searched_back_to is not None:
            lines.append(f"(searched back to {stamp(page.searched_back_to)} only)")
        return lines

    async def _passages(self, question: str, within: Query) -> list[Event | str]:
        """Return the lines most likely to answer a question, best first."""
        passages = await self._log.passages_for_model(question, within, self._line_filter)
        events = [passage.event for passage in passages.answers]
        if not events:
            return ["no line answers that", *await self._semantic(question, within)]
        return ["best first:", *events]

    async def _semantic(self, text: str, within: Query) -> list[Event | str]:
        """Return the lines nearest in meaning to a query, after a heading; empty if there are
        none."""
        # The vector index knows no opt-outs, so `shown_to_model` filters the result.
        near = await nearest_events(
            self._semantic_index, text, replace(within, limit=_MAX_SEMANTIC)
        )
        shown = await self._log.shown_to_model(near)
        lines = [event for event in shown if not self._line_filter.leaves_out(event)]
        return ["no line has these words; nearest in meaning:", *lines] if lines else []

    def _rendered(self, lines: Sequence[Event | str]) -> QuotingText:
        """Render lines for the model, with their channels if the scope has several, and notes."""
        one_place = self._scope.places is not None and len(self._scope.places) == 1
        events = [line for line in lines if isinstance(line, Event)]
        texts = (
            line
            if isinstance(line, str)
            else f"{'' if one_place else f'{escape_tags(line.channel)} '}{render_line(line)}"
            for line in lines
        )
        return QuotingText("\n".join(texts), map(ShownText.from_event, events))


def _moment(text: str) -> datetime | None:
    """Parse a time in the format of rendered lines, as UTC unless it has an offset; None if it is
    invalid."""
    try:
        time = datetime.fromisoformat(text.strip().strip("[]"))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
