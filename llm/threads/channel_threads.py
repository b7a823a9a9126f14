"""The conversations of a channel, followed as far as its log goes."""

from __future__ import annotations

import asyncio
from collections import deque

from llm.threads.ranking import LIKELY
from llm.threads.threads import BACK, Threads
from storage.chat_log.event import SPOKEN, Event, EventType, Place, Scope
from storage.chat_log.query import Query
from storage.protocols import LogReader

_FOLLOWED = SPOKEN | {EventType.JOIN, EventType.NICK}
_MOST = 2 * BACK  # events that are followed at once; before, everything has faded
_MINUTE = 60_000  # of ids, which are times in milliseconds
_PIECE = 50  # events between two looks at what else there is to do


class ChannelThreads:
    """The threads of a `place`, read from the log when a question comes.

    Lines are read in the order of the log, on from those of the last question. When too much was
    said in the meantime, the newest lines are read from scratch.

    """

    def __init__(self, log: LogReader, place: Place) -> None:
        self._log = log
        self._place = place
        self._busy = asyncio.Lock()
        self._load_recent()

    async def follow(self) -> None:
        """Take in what was said, so that the next question need not wait for that."""
        async with self._busy:
            await self._catch_up(None)

    async def find_related(self, who: str, text: str, anchor: int, most: int) -> list[int]:
        """Return the ids of at most `most` lines that likely belong to what `who` asks with the
        event `anchor`. Some may have come after it, or be such that a model may not see them
        now."""
        async with self._busy:
            if self._seen < anchor - 1:  # else nothing was said since
                await self._catch_up(anchor)
            minute = anchor // _MINUTE  # ids follow time
            numbers = self._threads.find_related(who, text, minute, most, LIKELY)
            oldest = self._threads.count - len(self._ids)
            return [self._ids[number - oldest] for number in numbers]

    async def _catch_up(self, before: int | None) -> None:
        query = Query(
            scope=Scope.from_places(self._place),
            types=_FOLLOWED,
            after_id=self._seen,
            before_id=before,
            limit=_MOST,
        )
        [events] = await self._log.for_model(query)
        if len(events) == _MOST:
            self._load_recent()
        for number, event in enumerate(events, 1):
            self._follow(event)
            if number % _PIECE == 0:
                await asyncio.sleep(0)

    def _load_recent(self) -> None:
        self._threads = Threads()
        self._ids: deque[int] = deque(maxlen=BACK)  # of the newest lines
        self._seen = 0

    def _follow(self, event: Event) -> None:
        self._seen = event.id
        match event.type:
            case EventType.JOIN:
                self._threads.on_join(event.nick)
            case EventType.NICK:
                self._threads.on_rename(event.nick, event.target)
            case _:
                minute = int(event.time.timestamp() // 60)
                self._threads.on_message(event.nick, event.text, minute)
                self._ids.append(event.id)
