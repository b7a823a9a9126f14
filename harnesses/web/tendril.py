"""The web tendril: pages and an API over the log, and a chat box."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, ClassVar

import structlog

from harnesses.core.addresses import listen_on, url_host
from harnesses.core.services.peers import EMPTY_SCOPE
from harnesses.core.services.question_tools import Door
from harnesses.core.services.shared_log import room_name
from harnesses.core.tendril.base import Tendril
from harnesses.web.app import create_app
from harnesses.web.app_state import AppState
from harnesses.web.pages.statistics import StatisticsTools
from harnesses.web.settings import WebSettings
from harnesses.web.visitors import DUE, ask_visitor_later
from storage.chat_log.event import PUBLIC, Place, is_private
from storage.memory.conversations import Turn
from terrarium.config import Config
from terrarium.http.serving import serve

_log = structlog.get_logger()


class WebTendril(Tendril):
    """The tendril that serves the IRC tendril's log and a chat page over HTTP."""

    name: ClassVar[str] = "web"
    asked_about: ClassVar[str] = "how much is said on channels, by whom and at which hours"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.settings = config.section(WebSettings)

    async def say(self, place: Place, text: str) -> bool:
        """Put a reminder into the conversation of its owner; return False for any other place.
        Raises StorageError."""
        if place.network != self.name or not is_private(place.channel):
            return False
        due = {"role": "user", "name": place.channel, "content": DUE}
        turn = Turn(0, self.clock.now(), (due, {"role": "assistant", "content": text}))
        room = room_name(place)
        await self.conversations.add(room, turn, room=room, person=place.channel)
        return True

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
