"""The view of a channel in a turn: log window, log tools, members, values of the persona."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from harnesses.core.permalinks import short_link
from harnesses.irc.policy.requests import CommandRequest
from harnesses.irc.replies.sender import without_highlight
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from llm.log_questions.answers import Quoting
from llm.prompt.log_window import LogWindow
from llm.threads.channel_threads import ChannelThreads
from llm.tools.log_search import LogTools
from llm.tools.toolbox import tool
from storage.chat_log.event import Event, PendingEvent, Place, Scope
from storage.db.database import to_micros
from storage.db.errors import StorageError
from storage.passages.passages import LineFilter

_FOLLOW_INTERVAL = 0.5  # seconds

_log = structlog.get_logger()


class LogViews:
    """The factory of log windows and log tools for turns.

    On channels where somebody has asked before, threads follow new lines in the background, so that
    the next question need not wait for that. `changed` are the places with lines not yet followed.
    """

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._threads: dict[Place, ChannelThreads] = {}
        self.changed: set[Place] = set()

    async def keep_threads_current(self) -> None:
        """Update the threads of channels where somebody has asked, until cancelled."""
        while True:
            await asyncio.sleep(_FOLLOW_INTERVAL)
            # New lines of all other places are left to the first question there.
            changed, self.changed = self.changed & self._threads.keys(), set()
            for place in changed:
                try:
                    await self._threads[place].follow()
                except StorageError as error:  # the next question tries again
                    _log.error("irc.not_followed", error=str(error))

    def for_question(self, request: CommandRequest) -> LogWindow:
        """Return the log window of a question, with what is needed to answer it by quoting lines.

        The threads of its channel are kept up to date from now on.
        """
        services, event = self._services, request.pending_event.event
        asked = event.time if event else services.tendril.clock.now()
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
        """Return the log window before the event id `anchor`, for an unasked turn."""
        last = self._services.behaviours.resolve(place).max_context_messages
        return LogWindow(
            log=self._services.log, place=place, anchor=anchor, last=last, speaker=speaker
        )

    def tools(self, place: Place, scope: Scope, before: PendingEvent | int) -> LogTools:
        """Return the tools that search `scope`, limited to what is `before` an event."""
        return LogTools(
            self._services.log,
            scope,
            before,
            self._services.semantic_index,
            self._quotable_lines(place),
        )

    def _quotable_lines(self, place: Place) -> LineFilter:
        """Return a filter for quotable lines: neither commands nor addressed to the bot."""
        nick = self._services.networks[place.network].nick
        prefix = self._services.behaviours.resolve(place).command_prefix
        return LineFilter(prefix=prefix, nicks=(nick,))

    def _quoting(self) -> Quoting:
        """Return the style of quoted lines: in our time zone, with a link if people can open it,
        and with nicks that highlight nobody."""

        def link(event: Event) -> str | None:
            address = None if event.private else self._services.web_address
            return f"{address}{short_link(event)}" if address else None

        return Quoting(self._services.tendril.agent.zone, link, without_highlight)

    def _threads_of(self, place: Place) -> ChannelThreads:
        if place not in self._threads:
            self._threads[place] = ChannelThreads(self._services.log, place)
        return self._threads[place]


class ChannelTools:
    """Tools about the channel of a turn."""

    def __init__(self, network: Network, channel: str) -> None:
        self._network = network
        self._channel = channel

    @tool(reads=True)
    async def get_current_users(self) -> list[str]:
        """List the nicks of the people who are in this channel now."""
        return self._network.members(self._channel)


def persona_values(network: Network, channel: str, *, private: bool = False) -> Mapping[str, str]:
    """Return the values of the `$names` in a persona, for a channel or a private conversation."""
    if private:
        return {"nick": network.nick, "channel": "(a private conversation)", "topic": "(none)"}
    topic = network.topic(channel) or "(none)"
    return {"nick": network.nick, "channel": channel, "topic": topic}
