"""The application state, live reading of the log, and the FastAPI dependencies for both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from fastapi import Depends, HTTPException, Request

from harnesses.core.chat import DirectChat
from harnesses.core.commands.request import TokenBuckets
from harnesses.core.jobs import open_stores
from harnesses.core.tendril.base import Tendril
from harnesses.web.auth.tokens import AccessTokens, LoginDelays, Viewer
from harnesses.web.settings import WebSettings
from storage.chat_log import arrivals
from storage.chat_log.event import Event, Scope
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.queues.pastes import Pastes
from storage.queues.reports import Reports
from storage.usage.web_logins import WebLogins

QUESTIONS_PER_SECOND = 0.5
"""Questions per second that an address may ask, over the chat box and MCP together, in bursts of
up to five."""

TOO_FAST = "You ask faster than I can answer; wait a few seconds."
_BATCH_SIZE = 200  # events that a stream reads at once


class ChangeNotifier:
    """Wakes any number of readers at the `changes` of a database, so that they share one watch."""

    def __init__(self, changes: Callable[[], AsyncIterator[None]]) -> None:
        self._of_database = changes
        self._changed = asyncio.Event()
        self._closed = False

    async def watch(self) -> None:
        """Wake the readers at each change, until cancelled."""
        async for _ in self._of_database():
            self._wake()

    def close(self) -> None:
        """End the streams of all readers, because the server is stopping."""
        self._closed = True
        self._wake()

    async def changes(self) -> AsyncIterator[None]:
        """Yield at once, and then at each change, until `close`."""
        while not self._closed:
            changed = self._changed  # as in `LogChangeNotifier.events`
            yield
            await changed.wait()

    def _wake(self) -> None:
        # Each change has its own Event: a single one would need to be cleared by some reader, which
        # could swallow the change for the others.
        self._changed.set()
        self._changed = asyncio.Event()


class LogChangeNotifier(ChangeNotifier):
    """Wakes the readers of the log, and reads it for them."""

    def __init__(self, log: ChatLog) -> None:
        super().__init__(log.database.changes)
        self._log = log

    async def events(
        self, query: Query, is_open: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[Event]:
        """Yield the events that match `query` and arrived after its `after_id`, as they arrive.

        They come in order of arrival, but if `after_id` has no arrival position, older ones come
        first, by id. Ends after `close`, or when there are events but `is_open` returns False.
        """
        position = await self._log.read(arrivals.position_of, query.after_id or 0)
        if position is None:
            # The end is read before the history, so that events which arrive in between are not
            # missed: they follow as arrivals.
            end = await self._log.read(arrivals.end)
            position, missed = end.position, replace(query, before_id=end.newest_id + 1)
            async for events in self._log.pieces(missed):
                if self._closed or not await is_open():
                    return
                # Ids follow the times of events, so one that has arrived since may be among them.
                # It is left out here, as it follows as an arrival.
                ids = frozenset(event.id for event in events)
                piece = replace(missed, ids=ids, limit=len(ids))
                since = await self._log.read(arrivals.after, piece, position)
                late = {event.id for event in since.events}
                for event in events:
                    if event.id not in late:
                        yield event
        query = replace(query, after_id=None, limit=_BATCH_SIZE)
        while not self._closed:
            changed = self._changed  # taken before reading: a change during it sets this one
            found = await self._log.read(arrivals.after, query, position)
            position = found.position
            # Checked after reading, so that nothing logged after a logout is shown.
            if found.events and not await is_open():
                return
            for event in found.events:
                yield event
            if len(found.events) < _BATCH_SIZE:
                await changed.wait()


class AppState:
    """The components of a web `tendril` that its requests use."""

    def __init__(self, tendril: Tendril, settings: WebSettings) -> None:
        log = tendril.log
        self.tendril, self.settings = tendril, settings
        self.chat = DirectChat(tendril)
        self.log, self.retrieval = log.chat_log, log.retrieval
        self.notifier = LogChangeNotifier(log.chat_log)
        self.turns = ChangeNotifier(tendril.database.changes)
        self.pastes, self.reports = Pastes(log.database), Reports(log.database)
        # The tendrils keep their runs where the log is: each in its own file, or in one database.
        store, self.data = log.database.address, tendril.config.data
        self.runs = self.data if isinstance(store, Path) else store
        self.tokens = AccessTokens(settings, WebLogins(tendril.database, tendril.clock.now))
        self.delays = LoginDelays()
        self.questions = TokenBuckets(QUESTIONS_PER_SECOND, time.monotonic, refusals_cost=False)
        # Those typed on the page for the setup, by the server that they are for: its pages show
        # none, and nobody should have to type them again.
        self.setup_secrets: dict[tuple[str, str], str] = {}

    def close(self) -> None:
        """End the streams of all readers, because the server is stopping."""
        self.notifier.close()
        self.turns.close()

    def stores(self) -> AbstractAsyncContextManager[Mapping[str, Database]]:
        """Open the stores of all tendrils, by the tendril's name. Raises StorageError."""
        return open_stores(self.tendril.config, self.tendril.database, self.log.database)

    async def lines(self, scope: Scope, ids: Collection[int]) -> dict[int, Event]:
        """Return the lines with these ids that are in a scope. Raises StorageError."""
        query = Query(scope=scope, ids=frozenset(ids), limit=len(ids))
        return {event.id: event for event in await self.log.find(query)} if ids else {}

    def site_url(self, request: Request) -> str:
        """Return the URL with which links to the site begin, for readers elsewhere."""
        return self.settings.public_url or str(request.base_url).rstrip("/")


def _app_state(request: Request) -> AppState:
    state = request.app.state.app_state
    assert isinstance(state, AppState)
    return state


AppStateDep = Annotated[AppState, Depends(_app_state)]


def viewer_of(request: Request) -> Viewer:
    """Return the viewer that `SecurityMiddleware` has stored in the request."""
    viewer = request.state.viewer
    assert isinstance(viewer, Viewer)
    return viewer


ViewerDep = Annotated[Viewer, Depends(viewer_of)]


def _scope(viewer: ViewerDep) -> Scope:
    return viewer.scope


ScopeDep = Annotated[Scope, Depends(_scope)]


def require_token(viewer: ViewerDep) -> None:
    """Raise 401 for a viewer without a token, if the site has tokens."""
    if not viewer.is_authenticated:
        raise HTTPException(401)


def require_full(viewer: ViewerDep) -> None:
    """Raise 401 unless the viewer has full access, to all channels."""
    if not viewer.has_full_access:
        raise HTTPException(401)


Follow = Callable[[Query], AsyncIterator[Event]]
"""Returns the events after the query's `after_id` as they arrive, until the server stops or the
viewer's login ends, which a stream has to notice by itself."""


def _follow(state: AppStateDep, viewer: ViewerDep) -> Follow:
    return lambda query: state.notifier.events(query, is_open=lambda: state.tokens.is_valid(viewer))


FollowDep = Annotated[Follow, Depends(_follow)]
