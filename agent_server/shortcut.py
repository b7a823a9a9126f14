"""Requests for the endpoints that matter most skip the framework's router and its layers."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_server.errors import ApiError
from agent_server.mind import Mind
from agent_server.refusals import refusal
from agent_server.routes.direct import DirectRoute, Handle


class Shortcut:
    """ASGI middleware that answers for the direct routes of `routers` itself, with `mind`.

    The routes stay in the application too: for its description, and for other methods.
    """

    def __init__(self, app: ASGIApp, mind: Mind, routers: Iterable[APIRouter]) -> None:
        self._app = app
        self._direct: dict[tuple[str, str], tuple[DirectRoute, Handle]] = {
            (method, route.path): (route, route.answering(mind))
            for router in routers
            for route in router.routes
            if isinstance(route, DirectRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        found = self._direct.get((scope["method"], scope["path"]))
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"], handle = found
        request = Request(scope, receive)
        try:
            response = await handle(request)
        except (ApiError, RequestValidationError, HTTPException) as error:
            response = refusal(request, error)
        await response(scope, receive, send)
