"""Proxy in front of an agent server that records the prompts of tendrils.

Run alone as `python -m tests.kit.recorder URL`, it prints the messages of each chat as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from harnesses.core.launcher.readiness import PROBE_SESSION
from tests.kit.serving import serving

_PASSED_ON = ("authorization", "x-session-id", "x-priority", "x-request-id")  # headers


@dataclass(slots=True)
class Recorder:
    """A running proxy: its `url`, `prompts`, the messages of each chat request, and `texts`, those
    that are to be continued.

    The requests by which `terrarium up` probes the model are not recorded.
    """

    url: str = ""
    prompts: list[list[dict[str, Any]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


@asynccontextmanager
async def recorder(
    target: str, show: Callable[[str], None] | None = None
) -> AsyncIterator[Recorder]:
    """Run a proxy in front of the server at `target`, which need not be running yet.

    `show` is called with each prompt as JSON.
    """
    kept = Recorder()
    async with httpx2.AsyncClient(base_url=target, timeout=120) as http:

        async def passed_on(request: Request) -> StreamingResponse:
            is_probe = request.headers.get("x-session-id") == PROBE_SESSION
            if request.url.path == "/v1/chat/completions" and not is_probe:
                kept.prompts.append((await request.json())["messages"])
                if show:
                    show(json.dumps(kept.prompts[-1], indent=2, ensure_ascii=False))
            if request.url.path == "/v1/completions":
                kept.texts.append((await request.json())["prompt"])
            sent = http.build_request(
                request.method,
                request.url.path,
                content=await request.body(),
                headers={"content-type": "application/json"}
                | {name: request.headers[name] for name in _PASSED_ON if name in request.headers},
            )
            answer = await http.send(sent, stream=True)

            async def body() -> AsyncIterator[bytes]:
                async with aclosing(answer):
                    async for piece in answer.aiter_raw():
                        yield piece

            kind = answer.headers.get("content-type", "")
            return StreamingResponse(body(), answer.status_code, {"content-type": kind})

        route = Route("/{path:path}", passed_on, methods=["GET", "POST"])
        async with serving(Starlette(routes=[route])) as kept.url:
            yield kept


async def _print_prompts(target: str) -> None:
    async with recorder(target, lambda prompt: print(prompt, flush=True)) as kept:
        print(f"AGENT_API_URL={kept.url}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_print_prompts(sys.argv[1]))
