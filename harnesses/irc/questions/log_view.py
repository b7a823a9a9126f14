"""The part of the log that a turn is shown, and the tools to read more of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import structlog

from harnesses.core.permalinks import short_link
from harnesses.irc.policy.requests import CommandRequest
from harnesses.irc.replies.sender import without_highlight
from harnesses.irc.services import BotServices
from llm.log_questions.answers import Quoting
from llm.prompt.log_window import LogWindow
from llm.threads.channel_threads import ChannelThreads
from llm.tools.log_search import LogTools
from storage.chat_log.event import Event, PendingEvent, Place, Scope
from storage.db.database import to_micros
from storage.db.errors import StorageError
from storage.passages.passages import LineFilter

_FOLLOWED_EVERY = 0.5  # seconds

_log = structlog.get_logger()


class LogViews:
    """Makes the log windows and log tools of turns.

    Where somebody has asked before, the threads of the channel are kept up to date, so that the
    next question need not wait for that; `changed` are the places with new lines.
    """

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._threads: dict[Place, ChannelThreads] = {}
        self.changed: set[Place] = set()

    async def keep_threads_current(self) -> None:
        """Follow new lines of the channels where somebody has asked, until cancelled."""
        while True:
            await asyncio.sleep(_FOLLOWED_EVERY)
            changed, self.changed = self.changed & self._threads.keys(), set()
            for place in changed:
                try:
                    await self._threads[place].follow()
                except StorageError as error:  # the next question tries again
                    _log.error("irc.not_followed", error=str(error))

    def for_question(self, request: CommandRequest) -> LogWindow:
        """Return the log around a question, with whatever helps to answer it by quoting."""
        services, event = self._services, request.pending_event.event
        asked = event.time if event else datetime.now(UTC)
        return LogWindow(
            log=services.log,
            place=request.place,
            anchor=to_micros(asked) // 1000,  # ids of the log follow time
            last=services.behaviours.resolve(request.place).max_context_messages,
            speaker=request.nick,
            threads=None if request.private else self._threads_of(request.place),
            pending_event=request.pending_event,
            quoting=self._quoting(),
            line_filter=self._quotable_lines(request.place),
            people=request.network.members(request.place.channel),
            semantic_index=services.semantic_index,
        )

    def before(self, place: Place, anchor: int, speaker: str) -> LogWindow:
        """Return the log before the event id `anchor`, for a turn that nobody asked for."""
        last = self._services.behaviours.resolve(place).max_context_messages
        return LogWindow(
            log=self._services.log, place=place, anchor=anchor, last=last, speaker=speaker
        )

    def tools(self, place: Place, scope: Scope, before: PendingEvent | int) -> LogTools:
        """Return the tools that search what `scope` has before an event."""
        return LogTools(
            self._services.log,
            scope,
            before,
            self._services.semantic_index,
            self._quotable_lines(place),
        )

    def _quotable_lines(self, place: Place) -> LineFilter:
        """Return a filter of lines that may be an answer: neither commands nor said to the bot."""
        nick = self._services.networks[place.network].nick
        return LineFilter(prefix=self._services.prefix(place), nicks=(nick,))

    def _quoting(self) -> Quoting:
        """Return how lines of the log are quoted: in our time zone, with a link where people can
        open it, and without highlighting anybody."""
        address = self._services.web_address

        def link(event: Event) -> str | None:
            return f"{address}{short_link(event)}" if address and not event.private else None

        return Quoting(self._services.tendril.agent.zone, link, without_highlight)

    def _threads_of(self, place: Place) -> ChannelThreads:
        if place not in self._threads:
            self._threads[place] = ChannelThreads(self._services.log, place)
        return self._threads[place]
