"""The rules that keep a run from going round in circles."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.agent.tool_executor import Act, Guardrails, Profile, RunLimits
from llm.client.settings import AgentSettings
from llm.messages.message import ToolCall
from llm.tools.toolbox import ToolOptions
from terrarium.config import Config

KINDS = {
    "say": ToolOptions(speaks=True, effect=True),
    "note": ToolOptions(quiet=True),
    "look": ToolOptions(reads=True, research=True),
}


def call(arguments: str = "{}", name: str = "search") -> ToolCall:
    return ToolCall("call_1", name, arguments)


def guarded(limits: RunLimits | None = None) -> Guardrails:
    return Guardrails(limits or RunLimits(), lambda name: KINDS.get(name, ToolOptions()))


def judged(guard: Guardrails, *calls: ToolCall) -> list[Act]:
    """The verdicts on calls of which each comes in a reply of its own."""
    return [guard.judge([each])[0].act for each in calls]


def numbered(name: str, count: int) -> Iterable[ToolCall]:
    """Calls of a tool, all different."""
    return [call(f'{{"n": {number}}}', name) for number in range(count)]


def limits(profile: Profile, **agent: int) -> RunLimits:
    settings = Config({"agent": agent}, None, Path()).section(AgentSettings)
    return RunLimits.from_settings(settings, profile)


def test_the_third_identical_call_is_stopped_however_it_is_written() -> None:
    guard = guarded()
    same = ['{"a": 1, "b": 2}', '{"b":2,"a":1}', '{ "a":1, "b":2 }', '{"a":1,"b":2}']
    assert judged(guard, *map(call, same)) == ["allow", "allow", "steer", "steer"]
    assert judged(guard, call('{"a": 1, "b": 3}')) == ["allow"]
    assert judged(guard, call('{"a": 1, "b": 2}', name="other")) == ["allow"]


def test_identical_calls_of_one_reply_are_counted_before_any_of_them_runs() -> None:
    verdicts = guarded().judge([call("[1]") for _ in range(5)])
    assert [decision.act for decision in verdicts] == ["allow", "allow", "steer", "steer", "steer"]
    assert verdicts[2].words == "the same call was made before; use its result"


@pytest.mark.parametrize("text", ["{oops", "", "[" * 100_000])
def test_calls_that_are_not_json_are_compared_as_text(text: str) -> None:
    assert judged(guarded(), *[call(text)] * 3) == ["allow", "allow", "steer"]


def test_no_arguments_are_the_same_as_empty_ones() -> None:
    assert judged(guarded(), call(""), call("{}"), call(" {} ")) == ["allow", "allow", "steer"]


def test_two_calls_in_turn_end_the_run_at_the_third_round() -> None:
    guard = guarded()
    a, b = call("[1]", "search"), call("[2]", "who")
    assert judged(guard, a, b, a, b) == ["allow"] * 4
    assert not guard.exhausted
    assert judged(guard, a) == ["stop"]
    assert guard.exhausted
    assert judged(guard, call("[3]")) == ["drop"]


def test_two_calls_in_turn_of_one_reply_end_the_run_too() -> None:
    a, b = call("[1]", "search"), call("[2]", "who")
    verdicts = guarded().judge([a, b, a, b, a, b])
    assert [decision.act for decision in verdicts] == ["allow"] * 4 + ["stop", "drop"]


def test_two_tools_in_turn_with_new_arguments_are_fine() -> None:
    guard = guarded()
    for number in range(4):
        assert judged(guard, call(f"[{number}]"), call(f"[{number}]", "who")) == ["allow"] * 2


def test_no_more_calls_run_than_allowed() -> None:
    guard = guarded(RunLimits(calls=2))
    assert judged(guard, *numbered("search", 3)) == ["allow", "allow", "drop"]
    assert guard.exhausted


def test_a_call_that_was_stopped_costs_nothing() -> None:
    guard = guarded(RunLimits(calls=3))
    judged(guard, *[call()] * 5)
    assert not guard.exhausted


def test_without_calls_a_run_is_exhausted_from_the_start() -> None:
    assert guarded(RunLimits(calls=0)).exhausted


def test_one_tool_is_used_five_times_and_one_that_looks_things_up_fifteen() -> None:
    guard = guarded()
    assert judged(guard, *numbered("search", 6)) == ["allow"] * 5 + ["drop"]
    guard = guarded()
    assert judged(guard, *numbered("look", 16)) == ["allow"] * 15 + ["drop"]


def test_a_tool_that_failed_three_times_in_a_row_is_not_tried_again() -> None:
    guard = guarded()
    for each in numbered("search", 3):
        assert judged(guard, each) == ["allow"]
        guard.record("search", ok=False)
    assert judged(guard, call("[9]")) == ["steer"]
    assert guard.cooldown_reason("search") == "search has failed 3 times; do without it"
    assert judged(guard, call("[9]", "who")) == ["allow"]


def test_a_tool_that_works_now_and_then_may_fail_again() -> None:
    guard = guarded()
    for ok in (False, False, True, False, False):
        guard.record("search", ok=ok)
    assert guard.cooldown_reason("search") == ""


def test_five_replies_that_only_keep_notes_exhaust_a_run() -> None:
    guard = guarded()
    for each in numbered("note", 4):
        guard.judge([each, call("{}", "note")])
    assert not guard.exhausted
    guard.judge([call("[9]", "note")])
    assert guard.exhausted


def test_a_real_tool_between_notes_starts_their_count_anew() -> None:
    guard = guarded(RunLimits(uses=50))
    for each in numbered("note", 4):
        guard.judge([each])
    guard.judge([call("[7]", "note"), call("[7]")])
    for number in range(10, 14):
        guard.judge([call(f"[{number}]", "note")])
    assert not guard.exhausted


def test_no_more_messages_are_sent_to_people_than_the_limit() -> None:
    guard = guarded(RunLimits(messages=2))
    acts = [
        act
        for number in range(3)
        for act in judged(guard, call(f"[{number}]", "say"), call(f"[{number}]"))
    ]
    assert acts == ["allow", "allow", "allow", "allow", "drop", "allow"]


def test_nothing_is_said_of_how_it_goes_before_something_was_done() -> None:
    guard = guarded()
    assert judged(guard, call("[1]", "say"), call("[2]", "say")) == ["allow", "steer"]
    assert judged(guard, call("[1]", "note"), call("[3]", "say")) == ["allow", "steer"]
    assert judged(guard, call("[1]"), call("[4]", "say")) == ["allow", "allow"]


@pytest.mark.parametrize(
    ("profile", "iterations", "calls"),
    [
        ("standard", 12, 20),
        ("command", 8, 20),
        ("job", 30, 20),
        ("proactive", 12, 8),
        ("event", 12, 4),
        ("thought", 12, 2),
    ],
)
def test_what_sets_a_run_off_limits_it(profile: Profile, iterations: int, calls: int) -> None:
    found = limits(profile)
    assert (found.iterations, found.calls) == (iterations, calls)
    unasked = profile in ("proactive", "event", "thought")
    assert found == RunLimits(iterations=iterations, calls=calls, is_unasked=unasked)


def test_the_settings_move_the_limits_of_all_profiles() -> None:
    assert limits("command", max_iterations=1).iterations == 1
    assert limits("job", max_iterations=4).iterations == 10
    assert limits("proactive", max_tool_calls=3).calls == 3


@given(st.lists(st.tuples(st.sampled_from(["search", "say", "note", "look"]), st.integers(0, 3))))
def test_whatever_is_proposed_the_budgets_hold(proposed: list[tuple[str, int]]) -> None:
    guard, allowed = guarded(), []
    for name, number in proposed:
        proposal = call(str(number), name)
        if judged(guard, proposal) == ["allow"]:
            allowed.append(proposal)
    assert len(allowed) <= 20
    assert all(allowed.count(each) <= 2 for each in allowed)
    assert sum(each.name == "say" for each in allowed) <= 4
