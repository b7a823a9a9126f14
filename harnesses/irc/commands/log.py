"""Commands about the log of a channel: search and statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harnesses.core.text import counted
from harnesses.irc.policy.requests import CommandRequest, parse_command, without_highlight
from harnesses.irc.services import BotServices
from llm.messages.message import QuotingText, ShownText
from storage.chat_log import statistics
from storage.chat_log.event import Event, Scope
from storage.chat_log.event_table import Query
from storage.passages.passages import LineFilter
from storage.passages.words import asks
from storage.search.models import Order, SearchQuery

_SHOWN = 3  # lines of a search
_LOOKED_AT = 30  # lines that are fetched, as commands among them are left out


class LogCommands:
    """The commands; `is_known` tells whether a command of a given name exists."""

    def __init__(self, services: BotServices, is_known: Callable[[str], bool]) -> None:
        self._services, self._is_known = services, is_known

    async def search(self, request: CommandRequest) -> str:
        """search WORDS: find lines of this channel"""
        if not request.words:
            return f"Search for what? {self._services.prefix(request.place)}search WORDS"
        # In this order: the line that surely answers, lines with the words, lines that may answer,
        # lines near in meaning. The line of this command has the words as well; hence `before`.
        before = await request.pending_event.wait_visible() or None
        within = Query(scope=request.scope, own=False, before_id=before, limit=_LOOKED_AT)
        prefix, nick = self._services.prefix(request.place), request.network.nick
        answers = await self._services.medium.log.retrieval.answers(
            request.words, replace(within, limit=_SHOWN), LineFilter(prefix=prefix, nicks=(nick,))
        )
        if answers.is_sure:
            return _quoting([], [answers.passages[0].event])
        page = await self._services.log.search(
            SearchQuery(text=request.words, within=within, order=Order.TIME)
        )
        hits = [hit.event for hit in reversed(page.hits)]
        found = [event for event in hits if not self._is_command(event, request)]
        if found and not answers.passages:
            return _quoting([], found[-_SHOWN:])
        if answers.passages:
            return _quoting(["Perhaps:"], [each.event for each in answers.passages])
        meant = await self._services.medium.log.retrieval.near(request.words, within)
        events = [hit.event for hit in meant.hits] if meant else []
        near = [event for event in events if not self._is_command(event, request)][:_SHOWN]
        if not near:
            return "Nothing found."
        return _quoting(["Nobody wrote that; near in meaning:"], near)

    async def stats(self, request: CommandRequest) -> str:
        """stats: how much is said here, and by whom"""
        await request.pending_event.wait_visible()
        stats = await self._services.log.read(
            statistics.stats, Query(scope=Scope.from_places(request.place), own=False)
        )
        top = ", ".join(f"{without_highlight(nick)} {count:,}" for nick, count in stats.top)
        since = f" since {stats.first:%Y-%m-%d}" if stats.first else ""
        lines, people = counted(stats.lines, "line"), counted(stats.people, "person", "people")
        return f"{lines} by {people}{since}" + (f"; most by {top}" if stats.people > 1 else "")

    def _is_command(self, event: Event, request: CommandRequest) -> bool:
        """Return whether a line is a command or a question to us, which nobody searches for."""
        prefix, network = self._services.prefix(request.place), request.network
        nicks = (network.nick, network.settings.nick) if asks(event.text) else ()
        found = parse_command(event.text, prefix=prefix, nicks=nicks, private=False)
        return found is not None and self._is_known(found.command)


def _quoting(lead: list[str], events: Sequence[Event]) -> QuotingText:
    lines = (
        f"[{event.time:%Y-%m-%d %H:%M}] <{without_highlight(event.nick)}> {event.text}"
        for event in events
    )
    return QuotingText("\n".join([*lead, *lines]), map(ShownText.from_event, events))
