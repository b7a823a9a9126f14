"""Tools over the chat log, confined to a scope."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from llm.irc_logs import line, stamp
from llm.meaning import Meaning, near_to
from llm.tools import tool
from llm.untrusted import neutral
from storage.chat_log import Query
from storage.entry import Entry
from storage.event import Event, Scope
from storage.search_result import Order, Search
from storage.stores import LogReader

_MOST = 20  # lines in a result
_MOST_NEAR = 6  # of those that are only near in meaning


class LogTools:
    """What the model may look up in `log`: only what `scope` shows, and only what came before
    the event `before`, which asks, or a line on its way into the log, which is there when the model
    has an answer. What no words find is looked for by `meaning`, where there
    is such an index."""

    def __init__(
        self,
        log: LogReader,
        scope: Scope,
        before: int | Entry | None = None,
        meaning: Meaning | None = None,
    ) -> None:
        self._log = log
        self._scope = scope
        self._before = before
        self._meaning = meaning

    @tool(reads=True, research=True)
    async def search_chat_logs(
        self,
        query: Annotated[
            str,
            Field(
                max_length=200,
                description='words that a line must have; also "a phrase", or, -without',
            ),
        ] = "",
        user: Annotated[str, Field(max_length=64, description="nick who said it")] = "",
        hours: Annotated[int, Field(ge=0, le=87_600, description="how far back; 0: all")] = 0,
    ) -> str:
        """Search the chat log for lines that were said earlier than those you see."""
        before = self._before.id if isinstance(self._before, Entry) else self._before
        within = Query(
            scope=self._scope,
            before_id=before or None,
            nick=user or None,
            since=datetime.now(UTC) - timedelta(hours=hours) if hours else None,
            limit=_MOST,
        )
        asked = Search(text=query, within=within, order=Order.TIME)
        page = await self._log.search_for_model(asked)
        lines = [self._shown(hit.event) for hit in reversed(page.hits)]
        if page.searched_back_to is not None:
            lines.append(f"(searched back to {stamp(page.searched_back_to)} only)")
        return "\n".join(lines or await self._near(query, within)) or "nothing found"

    async def _near(self, text: str, within: Query) -> list[str]:
        """What is near in meaning to words that no line has."""
        near = await near_to(self._meaning, text, replace(within, limit=_MOST_NEAR))
        lines = [self._shown(event) for event in await self._log.shown_to_model(near)]
        return ["no line has these words; nearest in meaning:", *lines] if lines else []

    def _shown(self, event: Event) -> str:
        """A line as the model reads it; with its channel where there are several."""
        one_place = self._scope.places is not None and len(self._scope.places) == 1
        return line(event) if one_place else f"{neutral(event.channel)} {line(event)}"
