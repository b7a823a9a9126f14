"""The conversations of a channel, followed as far as its log goes."""

from __future__ import annotations

import asyncio
from collections import deque

from llm.relevance.ranking import LIKELY
from llm.relevance.threads import BACK, Threads
from storage.event import SPOKEN, Event, EventType, Place, Scope
from storage.log_query import Query
from storage.stores import LogReader

_FOLLOWED = SPOKEN | {EventType.JOIN, EventType.NICK}
_MOST = 2 * BACK  # events that are followed at once; before, everything has faded
_PIECE = 50  # events between two looks at what else there is to do


class ChannelThreads:
    """Which lines of `place` belong to what somebody asks there.

    Lines are taken in when a question comes, in the order of the log. When too much was said in
    the meantime, the last of it is followed anew.
    """

    def __init__(self, log: LogReader, place: Place) -> None:
        self._log = log
        self._place = place
        self._busy = asyncio.Lock()
        self._begin()

    async def related(self, who: str, text: str, anchor: int, most: int) -> list[Event]:
        """At most `most` lines from before the event `anchor` that likely belong to what `who` asks
        with it, oldest first. Nothing is returned that a model may not see."""
        async with self._busy:
            await self._catch_up(anchor)
            asked = await self._log.get(Scope.of(self._place), anchor)
            minute = _minute(asked) if asked else self._minute
            numbers = self._threads.related(who, text, minute, most, LIKELY)
            oldest = self._threads.count - len(self._ids)
            ids = frozenset(self._ids[number - oldest] for number in numbers)
        if not ids:
            return []
        # Another's later question may have taken in lines that came after this one.
        scope = Scope.of(self._place)
        return await self._log.for_model(Query(scope=scope, ids=ids, before_id=anchor, limit=most))

    async def _catch_up(self, anchor: int) -> None:
        query = Query(
            scope=Scope.of(self._place),
            types=_FOLLOWED,
            after_id=self._seen,
            before_id=anchor,
            limit=_MOST,
        )
        events = await self._log.for_model(query)
        if len(events) == _MOST:
            self._begin()
        for number, event in enumerate(events, 1):
            self._follow(event)
            if number % _PIECE == 0:
                await asyncio.sleep(0)

    def _begin(self) -> None:
        self._threads = Threads()
        self._ids: deque[int] = deque(maxlen=BACK)  # of the newest lines
        self._seen = 0
        self._minute = 0

    def _follow(self, event: Event) -> None:
        self._seen, self._minute = event.id, _minute(event)
        match event.type:
            case EventType.JOIN:
                self._threads.joined(event.nick)
            case EventType.NICK:
                self._threads.renamed(event.nick, event.target)
            case _:
                self._threads.said(event.nick, event.text, self._minute)
                self._ids.append(event.id)


def _minute(event: Event) -> int:
    return int(event.time.timestamp() // 60)
