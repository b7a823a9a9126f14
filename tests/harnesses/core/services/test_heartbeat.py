"""Heartbeats go on for as long as the server may take them."""

from __future__ import annotations

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from harnesses.core.services.heartbeat import send_heartbeats
from llm.client.client import AgentClient
from llm.client.response import Heartbeat
from llm.client.settings import AgentSettings
from tests.kit.jumping_loop import JumpingLoop
from tests.kit.patience import PATIENCE
from tests.kit.serving import serving


async def statuses_told(*statuses: int) -> list[int]:
    """The statuses that a tendril is answered with, until it stops or has heard them all."""
    loop, told, coming = asyncio.get_running_loop(), list[int](), iter(statuses)
    assert isinstance(loop, JumpingLoop)
    all_told = asyncio.Event()

    async def report(request: Request) -> Response:
        told.append(next(coming, 204))
        if len(told) == len(statuses):
            all_told.set()
        loop.call_later(0.1, jump)
        return (
            JSONResponse({"error": {"message": "no"}}, told[-1])
            if told[-1] > 204
            else Response(status_code=204)
        )

    def jump() -> None:
        loop.ahead += 10

    app = Starlette(routes=[Route("/v1/tendrils/{name}", report, methods=["PUT"])])
    async with serving(app) as url, AgentClient.open(AgentSettings(api_url=url)) as client:
        beating = asyncio.create_task(send_heartbeats(client, "rooms", _ready))
        waiting = asyncio.create_task(all_told.wait())
        await asyncio.wait(
            {beating, waiting}, timeout=10 * PATIENCE, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (beating, waiting):
            task.cancel()
    return told


def _ready() -> Heartbeat:
    return Heartbeat(state="ready", tools=[], pending=0, tokens_today=0, counters={}, gauges={})


@pytest.mark.parametrize(
    ("statuses", "told"),
    [([400, 422, 503, 204], [400, 422, 503, 204]), ([404, 204], [404]), ([405, 204], [405])],
)
def test_a_refused_heartbeat_is_sent_again_unless_there_is_no_such_endpoint(
    statuses: list[int], told: list[int]
) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        assert runner.run(statuses_told(*statuses)) == told
