"""Minimal server with the OpenAI chat API: neither streams nor token counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.kit.serving import serving


@asynccontextmanager
async def plain_openai(
    message: dict[str, Any], card: dict[str, Any] | None = None
) -> AsyncIterator[str]:
    """Run a server that always answers with `message`; yield its URL.

    It has the endpoint `/v1/models` only if there is a `card` to list.
    """

    async def chat(_request: Request) -> JSONResponse:
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        return JSONResponse({"object": "chat.completion", "choices": [choice], "usage": usage})

    async def models(_request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [card]})

    routes = [Route("/v1/chat/completions", chat, methods=["POST"])]
    if card is not None:
        routes.append(Route("/v1/models", models))
    async with serving(Starlette(routes=routes)) as url:
        yield url
