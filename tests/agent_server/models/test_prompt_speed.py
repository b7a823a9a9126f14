"""How fast a model reads prompts, learned from answers."""

from __future__ import annotations

from typing import Any

import pytest

from agent_server.models.measurements import PromptSpeed


def timings(tokens: Any, milliseconds: float) -> dict[str, Any]:
    return {"choices": [], "timings": {"prompt_n": tokens, "prompt_ms": milliseconds}}


def test_timings_of_the_engine_count() -> None:
    speed = PromptSpeed()
    speed.observe({"choices": [{"index": 0, "delta": {"content": "Hi"}}]})
    assert speed.rate is None
    speed.observe(timings(100, 200.0))
    assert speed.rate == pytest.approx(500)


def test_what_came_from_a_cache_says_nothing_of_reading() -> None:
    speed = PromptSpeed()
    speed.observe(timings(4, 90.0))
    speed.observe(timings("x", 90.0))
    speed.observe({"choices": [], "timings": None})
    assert speed.rate is None


def test_the_estimate_goes_with_the_time_and_large_prompts_weigh_more() -> None:
    speed = PromptSpeed()
    speed.note(1_000, 2.0)
    speed.note(100, 1.0)
    assert speed.rate == pytest.approx(366, rel=0.01)
    for _ in range(20):
        speed.note(1_000, 1.0)
    assert speed.rate == pytest.approx(1_000, rel=0.1)


def test_an_earlier_start_is_believed_until_answers_tell_better() -> None:
    speed = PromptSpeed()
    for rate in (0, 100, 400, 50):
        speed.seed(rate)
    assert speed.rate == pytest.approx(400)
    speed.note(968, 9.92)
    assert speed.rate == pytest.approx(100, rel=0.02)
    speed.seed(10_000)
    assert speed.rate == pytest.approx(100, rel=0.02)
