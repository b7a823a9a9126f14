"""The excerpt of a channel's log that a job shows to the model."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from llm.log_questions.answers import Quoting
from llm.prompt.log_window import LogWindow
from storage.chat_log.event import SPOKEN, Place, Scope
from storage.db.database import to_micros
from storage.log import ChatLog, Query


@dataclass(frozen=True, slots=True)
class LogExcerpt:
    """The last `hours` of a place: the newest `lines` that people said, with the events between
    them, and with times in a `zone`."""

    log: ChatLog
    place: Place
    hours: int
    lines: int
    zone: tzinfo = UTC

    async def view(self, now: datetime) -> LogWindow | None:
        """Return the log window that ends at `now`, None if nobody said anything in it."""
        said = await self.log.find(
            Query(
                scope=Scope.from_places(self.place),
                types=SPOKEN,
                own=False,
                since=now - timedelta(hours=self.hours),
                until=now,
                limit=self.lines,
            )
        )
        if not said:
            return None
        return LogWindow(
            log=self.log,
            place=self.place,
            # Ids of the log follow time; our answer to their last line came after it.
            anchor=max(said[-1].id + 1, to_micros(now) // 1000),
            last=self.lines,
            since=said[0].time,
            quoting=Quoting(self.zone),
        )
