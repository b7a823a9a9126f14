"""A tendril's own numbers, from its code to /metrics of the agent server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from harnesses.core.services.metrics import MAX_METRICS, TendrilMetrics
from terrarium import Config
from tests.kit.agent_server import agent_server
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.room_tendril import PERSONA, RoomTendril, ready


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
