"""Waiting for what was started, and the line about the model that answers."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest

from harnesses.core.launcher.readiness import Check, describe_model, tendril_ready, wait_until_ready
from harnesses.core.tendril.status import StatusFile
from llm.client.profile import CapabilitiesPart, ModelCard


def after(*answers: str | None) -> Check:
    """A check that gives these answers in turn, the last one for ever."""
    left = list(answers)

    async def check() -> str | None:
        return left.pop(0) if len(left) > 1 else left[0]

    return check


async def test_it_waits_until_all_is_well_at_the_same_time_and_says_what_for() -> None:
    said, passed = asyncio.Queue[str](), list[str]()

    async def slow() -> str | None:
        passed.append(await said.get() if "gone" not in "".join(passed) else "")
        return None if "waiting for a: gone; b: asleep" in passed else "asleep"

    checks = {"a": after(None, "gone", None), "b": slow}
    await wait_until_ready(checks, said.put_nowait, every=0.01, pause=0)


async def test_it_says_nothing_when_it_need_not_wait_long() -> None:
    said: list[str] = []
    await wait_until_ready({"a": after("asleep", None)}, said.append, every=10)
    assert said == []


async def test_a_tendril_is_ready_when_the_process_that_runs_now_says_so(tmp_path: Path) -> None:
    pids: dict[str, int] = {}
    check = partial(tendril_ready, tmp_path, "irc", pids)
    assert await check() == "it is starting"
    status = StatusFile(tmp_path, "irc")
    status.ready()
    assert await check() == "it is starting"  # an earlier process of that name said so
    pids["irc"] = os.getpid()
    assert await check() is None
    status.waiting("not yet on irc")
    assert await check() == "not yet on irc"


def card(**values: object) -> ModelCard:
    return ModelCard.model_validate({"id": "terra", "root": "terra", **values})


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"weights": "SmolLM2-135M-Instruct.Q4_1", "parameters": 134_515_008, "gpus": [],
             "better": "small", "capabilities": {"tools": "forced", "chooses_tools": False}},
            "model SmolLM2-135M-Instruct (135M): quotes and short answers; it is "
            "too small for tools\nbetter make up MODEL=small (runs well on this machine)",
        ),
        (
            {"weights": "Qwen3-4B-Instruct-2507-Q4_K_M", "parameters": 4_022_468_096,
             "gpus": ["CUDA0 (a card)"], "capabilities": {"chooses_tools": True}},
            "model Qwen3-4B-Instruct-2507 (4B): answers, tools, memory; computed by "
            "CUDA0 (a card)",
        ),
        (
            {"weights": "tiny-1b", "parameters": 10**9, "capabilities": {"chooses_tools": None}},
            "model tiny-1b (1B): answers; its use of tools is being tested",
        ),
        (
            {"weights": "tiny-1b", "capabilities": {"chooses_tools": False}},
            "model tiny-1b: answers; it uses no tools",
        ),
        (
            {"capabilities": {"tools": "native"}},
            "model terra: answers, tools, memory",
        ),
    ],
)  # fmt: skip
def test_models_say_what_they_can_and_which_command_helps(
    values: dict[str, object], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAKELEVEL", "1")
    assert describe_model(card(**values)) == line
    monkeypatch.delenv("MAKELEVEL")
    typed = line.replace("make up MODEL=small", "`terrarium up --model small`")
    assert describe_model(card(**values)) == typed


def test_a_server_that_says_only_a_name_is_described_by_it() -> None:
    assert describe_model(ModelCard(id="m", capabilities=CapabilitiesPart())).startswith(
        "model m: "
    )
