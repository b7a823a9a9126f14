"""A tendril's own numbers, and the heartbeats that bring them to the agent server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from harnesses.core.tendril.services import MAX_METRICS, TendrilMetrics, send_heartbeats
from harnesses.core.tendril.status import AccessMonitor, StatusFile, read_report
from llm.client.client import AgentClient, Heartbeat
from llm.client.settings import AgentSettings
from llm.messages.errors import ModelError
from terrarium import Config
from tests.kit.agent_server import agent_server
from tests.kit.jumping_loop import JumpingLoop
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.room_tendril import PERSONA, RoomTendril, ready
from tests.kit.serving import serving


class Counting(RoomTendril):
    """Has boiled two cups before it is ready."""

    async def serve(self) -> None:
        """Count, and be there."""
        self.metrics.count("cups_boiled", 2)
        self.metrics.set("degrees", 80.5)
        await super().serve()


async def test_the_numbers_of_a_tendril_are_exposed_for_prometheus(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url}) as url,
        httpx2.AsyncClient(base_url=url) as http,
        ready(Counting(Config({"agent": agent_table(url)}, None, tmp_path))),
    ):
        while "terrarium_tendril_pending{" not in (found := (await http.get("/metrics")).text):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    whose = 'key="anonymous",name="{}",tendril="rooms"'
    assert f"terrarium_tendril_counter_total{{{whose.format('cups_boiled')}}} 2.0" in found
    assert f"terrarium_tendril_gauge{{{whose.format('degrees')}}} 80.5" in found


def agent_table(url: str) -> dict[str, object]:
    return {"api_url": url, "timezone": "UTC", "personas": {"rooms": PERSONA}}


def test_a_metric_has_a_plain_name_and_there_are_not_too_many() -> None:
    metrics = TendrilMetrics()
    for name in ("", "Cups", "cups-boiled", "1st", "x" * 41, 'a"b'):
        with pytest.raises(ValueError, match="name of a metric"):
            metrics.count(name)
    with pytest.raises(ValueError, match="only grows"):
        metrics.count("cups", -1)
    for number in range(MAX_METRICS):
        metrics.set(f"n{number}", number)
    metrics.set("n0", 1)
    with pytest.raises(ValueError, match="at most"):
        metrics.set("one_more", 1)


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
                await client.send_heartbeat("rooms", _ready())
            await client.card("terra")  # what the key may do otherwise does not count
            AccessMonitor(client, status).report()
            reported = read_report(tmp_path, "rooms")
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
