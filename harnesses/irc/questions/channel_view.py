"""The view of a channel in a turn: log window, log tools, members, values of the persona."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from harnesses.core.permalinks import short_link
from harnesses.irc.policy.requests import CommandRequest
from harnesses.irc.replies.sender import without_highlight
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from llm.log_questions.answers import Quoting
from llm.prompt.log_window import LogWindow, WindowStarts
from llm.tools.log_search import LogTools
from llm.tools.toolbox import tool
from storage.chat_log.event import Event, PendingEvent, Place, Scope
from storage.db.database import to_micros
from storage.passages.passages import LineFilter

_FOLLOW_INTERVAL = 0.5  # seconds

_log = structlog.get_logger()


class LogViews:
    """The factory of log windows and log tools for turns."""

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._starts: WindowStarts = {}

    def for_question(self, request: CommandRequest) -> LogWindow:
        """Return the log window of a question, with what is needed to answer it by quoting
        lines."""
        services, event = self._services, request.pending_event.event
        asked = event.time if event else services.tendril.clock.now()
        return LogWindow(
            log=services.log,
            place=request.place,
            anchor=to_micros(asked) // 1000,  # ids of the log follow time
            last=services.behaviours.resolve(request.place).max_context_messages,
            speaker=request.nick,
            starts=self._starts,
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
            log=self._services.log,
            place=place,
            anchor=anchor,
            last=last,
            starts=self._starts,
            speaker=speaker,
            line_filter=self._quotable_lines(place),
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


class ChannelTools:
    """Tools about the channel of a turn."""

    def __init__(self, network: Network, channel: str) -> None:
        self._network = network
        self._channel = channel

    @tool(reads=True)
    async def get_current_users(self) -> list[str]:
        """List the nicks of the people who are in this channel now."""
        return self._network.members(self._channel)


def persona_values(
    network: Network, channel: str, prefix: str, *, private: bool = False
) -> Mapping[str, str]:
    """Return the values of the `$names` in a persona, for a channel or a private conversation in
    which commands begin with `prefix`."""
    abilities = (
        f"People can also give you commands, which you are not asked about: {prefix}remind,"
        f" {prefix}schedule, {prefix}search, {prefix}more for the rest of a long answer, and"
        f" {prefix}help for all of them."
    )
    values = {"nick": network.nick, "abilities": abilities}
    if private:
        place = (
            "IRC, in a private conversation. You do not see channels from here: your tools list,"
            " search and read those that this person may read"
        )
        return values | {"place": place, "channel": "a private conversation", "topic": ""}
    topic = network.topic(channel) or ""
    return values | {"place": f"the IRC channel {channel}", "channel": channel, "topic": topic}
