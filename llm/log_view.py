"""The part of a channel's log that belongs to a question."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from llm.channel_threads import ChannelThreads
from storage.chat_log import Query
from storage.event import SPOKEN, Event, Place, Scope
from storage.stores import LogReader

_OWN_WORDS = 3  # lines
_MOST = 5_000  # events read for one prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """The lines of `place` before the event `anchor`, which asks: the `last` that people said with
    all that happened between them. With `since` it is the view of somebody who asks from
    elsewhere: all lines from then on, each time anew. `speaker` is the nick of who asks; with
    `threads`, lines from further back are found that belong to what they ask."""

    log: LogReader
    place: Place
    anchor: int
    last: int
    since: datetime | None = None
    speaker: str = ""
    threads: ChannelThreads | None = None

    async def events(self, start: int, asked: Collection[int]) -> list[Event]:
        """The events to show, oldest first.

        They begin at the event `start` (0: not known yet) and grow, until people have said twice
        the wanted lines: then they begin anew. Questions that are shown as turns (`asked`, by
        event id) and our answers to them are left out.
        """
        if self.since is not None:
            return await self._find(0)
        if self.last == 0:
            return []
        if start == 0:
            events = await self._find(await self._first(asked))
        else:
            events = await self._find(start)
            if sum(_said(event, asked) for event in events) > 2 * self.last:
                first = await self._first(asked)
                events = [event for event in events if event.id >= first]
        return [event for event in events if not _of_turn(event, asked)]

    async def related(self, text: str) -> list[Event]:
        """The lines that belong to what the speaker asks, oldest first: as many as are wanted."""
        if self.threads is None or self.last == 0:
            return []
        return await self.threads.related(self.speaker, text, self.anchor, self.last)

    async def named(self, ids: Collection[int]) -> list[Event]:
        """Those of the events that are still there and may be shown, oldest first."""
        if not ids:
            return []
        query = Query(scope=Scope.of(self.place), ids=frozenset(ids), limit=len(ids))
        return await self.log.for_model(query)

    async def own_words(self) -> list[Event]:
        """What the speaker said last, oldest first."""
        if not self.speaker or self.last == 0:
            return []
        query = Query(
            scope=Scope.of(self.place),
            before_id=self.anchor,
            types=SPOKEN,
            nick=self.speaker,
            limit=_OWN_WORDS,
        )
        return await self.log.for_model(query)

    async def _find(self, first: int) -> list[Event]:
        return await self.log.for_model(replace(self._query(), after_id=first - 1, limit=_MOST))

    async def _first(self, asked: Collection[int]) -> int:
        """The id of the first of the `last` lines that people said."""
        limit = self.last + len(asked)
        query = replace(self._query(), types=SPOKEN, own=False, limit=limit)
        said = [event for event in await self.log.for_model(query) if _said(event, asked)]
        wanted = said[-self.last :]
        return wanted[0].id if wanted else self.anchor

    def _query(self) -> Query:
        scope = Scope.of(self.place)
        return Query(scope=scope, before_id=self.anchor, since=self.since)


def _said(event: Event, asked: Collection[int]) -> bool:
    """Whether an event counts: somebody said it, and it is not shown as a turn."""
    return event.type in SPOKEN and not event.own and event.id not in asked


def _of_turn(event: Event, asked: Collection[int]) -> bool:
    return event.id in asked or event.reply_to in asked
