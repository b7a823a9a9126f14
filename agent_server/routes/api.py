"""All endpoints, mounted on the application."""

from __future__ import annotations

from agent_server.http import exception_handlers
from agent_server.http.middleware import AgentServer
from agent_server.routes import chat, completions, embeddings, health, models, tendrils, usage
from agent_server.routes.anthropic_api import routes as anthropic_api
from agent_server.routes.dependencies import ServerState
from agent_server.routes.fast_route import FastPathMiddleware
from agent_server.routes.responses_api import routes as responses_api
from agent_server.schemas.responses import ErrorBody, errors

ROUTES = (
    chat,
    completions,
    responses_api,
    embeddings,
    anthropic_api,
    models,
    tendrils,
    usage,
    health,
)


def mount(app: AgentServer, state: ServerState) -> FastPathMiddleware:
    """Mount all endpoints and error handlers; return the ASGI app with the fast path in front."""
    app.state.server = state
    for routes in ROUTES:
        app.include_router(routes.router, responses=errors(ErrorBody))
    exception_handlers.register(app)
    return FastPathMiddleware(app.framework, state.pool, (chat.router, completions.router))
