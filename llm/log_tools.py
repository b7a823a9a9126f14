"""Tools over the chat log, confined to a scope."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from llm.irc_logs import line
from llm.tools import tool
from llm.untrusted import neutral
from storage.chat_log import ChatLog, Query
from storage.event import SPOKEN, Event, Scope

_MOST = 20  # lines in a result


class LogTools:
    """What the model may look up in `log`: only what `scope` shows, and only what came before
    the event `before`, which asks."""

    def __init__(self, log: ChatLog, scope: Scope, before: int | None = None) -> None:
        self._log = log
        self._scope = scope
        self._before = before

    @tool
    async def search_chat_logs(
        self,
        query: Annotated[
            str, Field(max_length=200, description="words that a line must have")
        ] = "",
        user: Annotated[str, Field(max_length=64, description="nick who said it")] = "",
        hours: Annotated[int, Field(ge=0, le=87_600, description="how far back; 0: all")] = 0,
    ) -> str:
        """Search the chat log for lines that were said earlier than those you see."""
        found = await self._log.for_model(
            Query(
                scope=self._scope,
                before_id=self._before,
                types=SPOKEN,
                text=query or None,
                nick=user or None,
                since=datetime.now(UTC) - timedelta(hours=hours) if hours else None,
                limit=_MOST,
            )
        )
        return "\n".join(map(self._shown, found)) or "nothing found"

    def _shown(self, event: Event) -> str:
        """A line as the model reads it; with its channel where there are several."""
        one_place = self._scope.places is not None and len(self._scope.places) == 1
        return line(event) if one_place else f"{neutral(event.channel)} {line(event)}"
