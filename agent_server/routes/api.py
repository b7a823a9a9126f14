"""All endpoints, mounted on the application."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from agent_server.errors import ApiError
from agent_server.http.errors import respond_with_error
from agent_server.routes import (
    catalogue,
    chat,
    completions,
    embeddings,
    health,
    models,
    tendrils,
    usage,
)
from agent_server.routes.anthropic_api import routes as anthropic_api
from agent_server.routes.dependencies import ServerState
from agent_server.routes.responses_api import routes as responses_api

ROUTES = (
    chat,
    completions,
    responses_api,
    embeddings,
    anthropic_api,
    models,
    catalogue,
    tendrils,
    usage,
    health,
)


def mount(app: FastAPI, state: ServerState) -> None:
    """Mount all endpoints and error handlers."""
    app.state.server = state
    # Not by `include_router`, which makes all of these routes anew, while the first request waits.
    for routes in ROUTES:
        app.router.routes += routes.router.routes
    for kind in (ApiError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, respond_with_error)
