"""The application state, and the FastAPI dependencies that inject it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated

from fastapi import Depends, HTTPException, Request

from harnesses.core.rate_limit import TokenBuckets
from harnesses.core.tendril.base import Tendril
from harnesses.web.auth.login_delays import LoginDelays
from harnesses.web.auth.tokens import AccessTokens, Viewer
from harnesses.web.change_notifier import LogChangeNotifier
from harnesses.web.chat_service import ChatService
from harnesses.web.settings import WebSettings
from storage.chat_log.event import Event, Scope
from storage.chat_log.event_table import Query
from storage.queues.pastes import Pastes
from storage.usage.web_logins import WebLogins

QUESTIONS_PER_SECOND = 0.5
"""Questions per second that an address may ask, over the chat box and MCP together, in bursts of
up to five."""

TOO_FAST = "You ask faster than I can answer; wait a few seconds."


class AppState:
    """The components of a web `tendril` that its requests use."""

    def __init__(self, tendril: Tendril, settings: WebSettings) -> None:
        log = tendril.log
        self.tendril, self.settings = tendril, settings
        self.log, self.retrieval = log.chat_log, log.retrieval
        self.notifier = LogChangeNotifier(log.chat_log)
        self.pastes = Pastes(log.database)
        # The tendrils keep their runs where the log is: each in its own file, or in one database.
        store, self.data = log.database.address, tendril.config.data
        self.runs = self.data if isinstance(store, Path) else store
        self.tokens = AccessTokens(settings, WebLogins(tendril.database, tendril.clock.now))
        self.delays = LoginDelays()
        self.chat = ChatService(tendril)
        self.questions = TokenBuckets(QUESTIONS_PER_SECOND, time.monotonic, refusals_cost=False)

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
