"""How fast a model reads prompts, learned from answers."""

from __future__ import annotations

from typing import Any

import pytest

from agent_server.metering.request_context import RequestContext
from agent_server.models.measurements import PromptSpeed


def words(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def usage(prompt: int, cached: int) -> dict[str, Any]:
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": 2, **details}}


def observe(speed: PromptSpeed, *chunks: dict[str, Any]) -> None:
    timer = speed.timer(RequestContext())
    for chunk in chunks:
        timer.observe(chunk)


def test_timings_of_the_engine_count() -> None:
    speed = PromptSpeed()
    last = {**usage(110, 10), "timings": {"prompt_n": 100, "prompt_ms": 200.0}}
    observe(speed, words(content="Hi"), last)
    assert speed.rate == pytest.approx(500)


def test_without_timings_the_time_to_the_first_words_counts() -> None:
    speed = PromptSpeed()
    observe(speed, words(role="assistant"), words(content="Hi"), usage(1_000, 0))
    assert speed.rate is not None


def test_what_came_from_a_cache_says_nothing_of_reading() -> None:
    speed = PromptSpeed()
    observe(speed, words(content="Hi"), usage(1_000, 990))
    observe(speed, {"timings": {"prompt_n": 4, "prompt_ms": 90.0}, "choices": []})
    observe(speed, {"timings": {"prompt_n": "x"}, "choices": []}, {"timings": None})
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
