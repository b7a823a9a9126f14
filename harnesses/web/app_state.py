"""The application state, and the FastAPI dependencies that inject it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends, HTTPException, Request

from harnesses.core.rate_limit import TokenBuckets
from harnesses.web.auth.login_delays import LoginDelays
from harnesses.web.auth.tokens import AccessTokens, Viewer
from harnesses.web.change_notifier import LogChangeNotifier
from harnesses.web.chat_service import ChatService
from harnesses.web.settings import WebSettings
from llm.retrieval import Retrieval
from storage.chat_log.event import Event, Scope
from storage.chat_log.event_table import Query
from storage.db.address import PostgresSchema
from storage.log import ChatLog
from storage.queues.pastes import Pastes

QUESTIONS_PER_SECOND = 0.5
"""Questions per second that an address may ask, over the chat box and MCP together, in bursts of
up to five."""

TOO_FAST = "You ask faster than I can answer; wait a few seconds."


@dataclass(frozen=True, slots=True)
class AppState:
    """The components of the web tendril that requests use.

    `data` is the folder of the status files, `runs` the store of the runs of all tendrils.
    `tool_owners` returns the objects whose tools MCP clients with a scope may call. `disk_trouble`
    returns why nothing can be written at the moment, or "".
    """

    settings: WebSettings
    log: ChatLog
    retrieval: Retrieval
    notifier: LogChangeNotifier
    chat: ChatService
    pastes: Pastes
    tokens: AccessTokens
    data: Path
    runs: Path | PostgresSchema
    logins: LoginDelays = field(default_factory=LoginDelays)
    questions: TokenBuckets = field(
        default_factory=lambda: TokenBuckets(
            QUESTIONS_PER_SECOND, time.monotonic, refusals_cost=False
        )
    )
    tool_owners: Callable[[Scope], Sequence[object]] = lambda scope: ()
    disk_trouble: Callable[[], str] = str


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
    return lambda query: state.notifier.events(
        state.log, query, is_open=lambda: state.tokens.is_valid(viewer)
    )


FollowDep = Annotated[Follow, Depends(_follow)]
