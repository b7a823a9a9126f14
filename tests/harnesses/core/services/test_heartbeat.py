"""Heartbeats go on for as long as the server may take them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from harnesses.core.services.metrics import send_heartbeats
from harnesses.core.tendril.status import AccessMonitor, StatusFile, report
from llm.client.client import AgentClient
from llm.client.response import Heartbeat
from llm.client.settings import AgentSettings
from llm.messages.errors import ModelError
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


async def test_a_key_that_is_refused_for_heartbeats_is_in_the_status_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    answers = iter((401, 403, 204, 401, 404))

    async def take(_: Request) -> Response:
        status = next(answers)
        return Response(status_code=204) if status == 204 else JSONResponse({}, status)

    async def models(_: Request) -> Response:
        return JSONResponse({"id": "terra", "object": "model"})

    app = Starlette(
        routes=[
            Route("/v1/tendrils/{name}", take, methods=["PUT"]),
            Route("/v1/models/{name}", models),
        ]
    )
    status = StatusFile(tmp_path, "rooms")
    status.ready()
    troubles = []
    async with serving(app) as url, AgentClient.open(AgentSettings(api_url=url)) as client:
        for _ in range(5):
            with suppress(ModelError):
                await client.report("rooms", _ready())
            await client.model("terra")  # what the key may do otherwise does not count
            AccessMonitor(client, status).report()
            reported = report(tmp_path, "rooms")
            assert reported
            troubles.append("terrarium keys create" in reported.trouble)
    assert troubles == [True, True, False, True, False]


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
