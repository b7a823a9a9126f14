"""The rules that keep a run from going round in circles."""

from __future__ import annotations

import pytest

from llm.guardrails import Guardrails
from llm.message import ToolCall


def call(arguments: str = "{}", name: str = "search") -> ToolCall:
    return ToolCall("call_1", name, arguments)


def test_the_third_identical_call_is_stopped_however_it_is_written() -> None:
    guard = Guardrails(20)
    assert guard.objection(call('{"a": 1, "b": 2}')) is None
    assert guard.objection(call('{"b":2,"a":1}')) is None
    assert "same call" in (guard.objection(call('{ "a":1, "b":2 }')) or "")
    assert guard.objection(call('{"a": 1, "b": 3}')) is None
    assert guard.objection(call('{"a": 1, "b": 2}', name="other")) is None


@pytest.mark.parametrize("text", ["{oops", "", "[" * 100_000])
def test_calls_that_are_not_json_are_compared_as_text(text: str) -> None:
    guard = Guardrails(20)
    assert [guard.objection(call(text)) is None for _ in range(3)] == [True, True, False]


def test_no_more_calls_run_than_allowed() -> None:
    guard = Guardrails(2)
    assert [guard.objection(call(f"[{n}]")) is None for n in range(3)] == [True, True, False]
    assert guard.exhausted


def test_a_call_that_was_stopped_costs_nothing() -> None:
    guard = Guardrails(3)
    for _ in range(5):
        guard.objection(call())
    assert not guard.exhausted


def test_without_calls_a_run_is_exhausted_from_the_start() -> None:
    assert Guardrails(0).exhausted
