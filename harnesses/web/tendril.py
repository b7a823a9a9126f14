"""The web tendril: pages and an API over the log, and a chat box."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, ClassVar

import structlog
from pydantic import Field

from harnesses.core.addresses import listen_on, url_host
from harnesses.core.services.peers import EMPTY_SCOPE
from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.base import Tendril
from harnesses.core.text import counted
from harnesses.web.app import create_app
from harnesses.web.app_state import AppState
from harnesses.web.settings import WebSettings
from harnesses.web.visitors import ask_visitor_later, put_reminder
from llm.messages.message import escape_tags
from llm.tools.toolbox import tool
from storage.chat_log import statistics
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import PUBLIC, Place, Scope
from storage.chat_log.opt_outs import person_of, rules
from storage.log import ChatLog, Query
from terrarium.config import Config
from terrarium.http.serving import serve

_TOP = 10  # people
_HOURS = 3  # hours of the day in which most is said
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StatisticsTools:
    """The tool over the part of a `log` that `scope` covers."""

    log: ChatLog
    scope: Scope

    @tool(reads=True)
    async def statistics(
        self,
        channel: Annotated[str, Field(max_length=200, description="only this channel")] = "",
        days: Annotated[int, Field(ge=0, le=36_500, description="only the last; 0: all")] = 0,
    ) -> str:
        """Tell how much was said on the channels that the person who asks may read, by whom most,
        and at which hours."""
        query = Query(scope=self.scope).in_channel(ChannelName.parse(channel))
        if days:
            query = replace(query, since=datetime.now(UTC) - timedelta(days=days))
        found = await self.log.read(statistics.stats, query, _TOP)
        if not found.lines or not found.first or not found.last:
            return "nothing was said there"
        # The counters know no opt-outs.
        gone = {nick for _, nick in (await self.log.read(rules)).nicks}
        people = (
            f"{escape_tags(nick)} {lines:,}"
            for nick, lines in found.top
            if person_of(nick) not in gone
        )
        told = [
            f"{counted(found.lines, 'line')} by {counted(found.people, 'nick')},"
            f" {found.first:%Y-%m-%d} to {found.last:%Y-%m-%d}",
            f"most by: {', '.join(people)}",
        ]
        if not days:  # the hours are counted for all time
            week = await self.log.read(statistics.heat_map, query)
            hours = [sum(day[hour] for day in week) for hour in range(24)]
            best = sorted(range(24), key=lambda hour: -hours[hour])[:_HOURS]
            told.append(f"most at (UTC): {', '.join(f'{hour:02}:00' for hour in best)}")
        return "\n".join(told)


class WebTendril(Tendril):
    """The tendril that serves the IRC tendril's log and a chat page over HTTP."""

    name: ClassVar[str] = "web"
    asked_about: ClassVar[str] = "how much is said on channels, by whom and at which hours"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.settings = config.section(WebSettings)

    async def say(self, place: Place, text: str) -> bool:
        """Put a reminder into the conversation of its owner; return False for any other place."""
        return place.network == self.name and await put_reminder(self, place, text)

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return the coroutines to run concurrently with `serve`: that of scheduled questions."""
        # Who has asked may have lost access since: where a token is required, it reads no channels.
        scope = EMPTY_SCOPE if self.settings.token else PUBLIC
        ask = partial(ask_visitor_later, self, scope)
        return [*super().background(), self.remind.run_questions(ask)]

    def tools_for(self, door: Door) -> list[object]:
        """Return the owners of the tools of a question, with the statistics of what it may read."""
        return [*super().tools_for(door), StatisticsTools(self.log.chat_log, door.log.scope)]

    async def serve(self) -> None:
        """Serve until cancelled. Raises PortTaken, TendrilError, StorageError."""
        host, port = self.settings.host, self.settings.port
        with listen_on(host, port, "WEB_PORT", "[web] port") as listener:
            # Not `url`: of 0.0.0.0 it makes loopback, which links for people must not have.
            host, port = listener.getsockname()[:2]
            address = f"http://{url_host(host)}:{port}"
            _log.info("web.serving", address=address)
            if self.settings.token is None:
                _log.info(
                    "web.loopback_only",
                    reason="there is no token, so only this machine may read the pages;"
                    " to open them to others set WEB_TOKEN and WEB_HOST",
                )
            state = AppState(self, self.settings)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(state.notifier.watch())
                tasks.create_task(state.turns.watch())
                await serve(
                    create_app(state),
                    listener,
                    ready=lambda: self.status.ready(address),
                    stopping=state.close,
                    proxies=self.settings.trusted_proxies,
                )
