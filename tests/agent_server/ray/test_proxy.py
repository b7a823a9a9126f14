"""What clients get from Ray's proxy while the application is not there."""

from __future__ import annotations

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agent_server.ray.proxy import RetryMiddleware
from tests.kit.patience import PATIENCE
from tests.kit.serving import serving


async def _gone(request: Request) -> Response:
    """Answer as Ray's proxy does while no application has the path."""
    text = f"Path '{request.url.path}' not found. Ping http://.../-/routes for available routes."
    return PlainTextResponse(text, 404)


async def _unknown(_: Request) -> Response:
    return JSONResponse({"error": {"message": "no such model"}}, 404)


async def test_while_the_application_stops_clients_get_an_error_that_they_retry() -> None:
    routes = [Route("/v1/models/none", _unknown), Route("/{path:path}", _gone, methods=["POST"])]
    async with (
        serving(RetryMiddleware(Starlette(routes=routes))) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as http,
    ):
        answer = await http.post("/v1/chat/completions", json={"messages": []})
        assert answer.status_code == 503
        assert answer.json()["error"]["message"].startswith("no server can be reached")
        assert (await http.get("/v1/models/none")).status_code == 404
