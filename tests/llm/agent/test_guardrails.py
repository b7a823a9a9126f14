"""The rules that keep a run from going round in circles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.agent.tool_executor import Act, Guardrails, RunLimits, Trigger
from llm.client.settings import AgentSettings
from llm.messages.message import ToolCall
from llm.tools.toolbox import ToolOptions

KINDS = {
    "say": ToolOptions(speaks=True, effect=True),
    "note": ToolOptions(quiet=True),
    "look": ToolOptions(reads=True, research=True),
}


def call(arguments: str = "{}", name: str = "search") -> ToolCall:
    return ToolCall("call_1", name, arguments)


def guarded(calls: int = 20) -> Guardrails:
    return Guardrails(calls, lambda name: KINDS.get(name, ToolOptions()))


def judged(guard: Guardrails, *calls: ToolCall) -> list[Act]:
    """The verdicts on calls of which each comes in a reply of its own."""
    return [guard.judge([each])[0].act for each in calls]


def numbered(name: str, count: int) -> list[ToolCall]:
    """Calls of a tool, all different."""
    return [call(f'{{"n": {number}}}', name) for number in range(count)]


A, B = call("[1]", "search"), call("[2]", "who")
SAME = ['{"a": 1, "b": 2}', '{"b":2,"a":1}', '{ "a":1, "b":2 }', '{"a":1,"b":2}']
SAY, OTHER_SAY, NOTE = call("[1]", "say"), call("[2]", "say"), call("[1]", "note")
# Each of four messages, with some work before the next one.
SAYING = [call(f"[{n}]", name) for n in range(4) for name in ("say", "look")]


@pytest.mark.parametrize(
    ("most", "calls", "acts", "exhausted"),
    [
        (20, [*map(call, SAME)], "allow allow steer steer", False),
        (20, [call("{oops")] * 3, "allow allow steer", False),
        (20, [call("[" * 100_000)] * 3, "allow allow steer", False),
        (20, [call(""), call("{}"), call(" {} ")], "allow allow steer", False),
        (20, [call("[1]"), call("[1]"), call("[1]", "who")], "allow allow allow", False),
        (20, [A, B, A, B], "allow allow allow allow", False),
        (20, [A, B, A, B, A, call("[3]")], "allow allow allow allow stop drop", True),
        (2, numbered("search", 3), "allow allow drop", True),
        (3, [call()] * 5, "allow allow steer steer steer", False),
        (0, [], "", True),
        (20, numbered("search", 6), "allow " * 5 + "drop", False),
        (20, numbered("look", 16), "allow " * 15 + "drop", False),
        (20, [SAY, OTHER_SAY], "allow steer", False),
        (20, [SAY, NOTE, OTHER_SAY], "allow allow steer", False),
        (20, [SAY, A, OTHER_SAY], "allow allow allow", False),
        (20, [*SAYING, *numbered("say", 1), B], "allow " * 8 + "drop allow", False),
    ],
)
def test_a_run_that_repeats_itself_or_goes_too_far_is_told_so(
    most: int, calls: Sequence[ToolCall], acts: str, exhausted: bool
) -> None:
    guard = guarded(most)
    assert judged(guard, *calls) == acts.split()
    assert guard.is_exhausted is exhausted


def test_calls_of_one_reply_are_counted_before_any_of_them_runs() -> None:
    verdicts = guarded().judge([call("[1]") for _ in range(5)])
    assert [decision.act for decision in verdicts] == ["allow", "allow", "steer", "steer", "steer"]
    assert verdicts[2].words == "the same call was made before; use its result"
    verdicts = guarded().judge([A, B, A, B, A, B])
    assert [decision.act for decision in verdicts] == ["allow"] * 4 + ["stop", "drop"]


def test_a_tool_that_failed_three_times_in_a_row_is_not_tried_again() -> None:
    guard = guarded()
    for ok in (False, False, True, False, False):
        guard.record("search", ok=ok)
    assert guard.cooldown_reason("search") == ""
    guard.record("search", ok=False)
    assert judged(guard, call("[9]")) == ["steer"]
    assert guard.cooldown_reason("search") == "search has failed 3 times; do without it"
    assert judged(guard, call("[9]", "who")) == ["allow"]


def test_five_replies_that_only_keep_notes_exhaust_a_run() -> None:
    guard = guarded()
    for each in numbered("note", 4):
        guard.judge([each, call("{}", "note")])
    guard.judge([call("[7]", "note"), call("[7]")])  # a real tool between them
    for number in range(10, 14):  # also what is refused, as one tool is used too often
        guard.judge([call(f"[{number}]", "note")])
    assert not guard.is_exhausted
    guard.judge([call("[9]", "note")])
    assert guard.is_exhausted


@pytest.mark.parametrize(
    ("trigger", "settings", "limits"),
    [
        ("standard", {}, RunLimits(12, 20)),
        ("standard", {"max_iterations": 1}, RunLimits(1, 20)),
        ("job", {}, RunLimits(30, 20)),
        ("job", {"max_iterations": 4}, RunLimits(10, 20)),
        ("proactive", {}, RunLimits(12, 8)),
        ("proactive", {"max_tool_calls": 3}, RunLimits(12, 3)),
    ],
)
def test_what_sets_a_run_off_limits_it_as_the_settings_do(
    trigger: Trigger, settings: dict[str, Any], limits: RunLimits
) -> None:
    assert RunLimits.from_settings(AgentSettings(**settings), trigger) == limits


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
