"""What a tendril's turns leave behind, and how they end other than with an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harnesses.core.tendril.turn import TurnResult
from llm.agent.tool_executor import Trigger
from llm.tools.toolbox import tool
from storage.runs.reader import RunRecord, newest_runs, read_run, read_turns
from tests.harnesses.core.tendril.test_base import small, texts
from tests.kit.openai_script import Answer as Scripted
from tests.kit.openai_script import ScriptedOpenAI

TABLES = ("runs", "run_steps", "effects")


def small_files(data: Path) -> list[Path]:
    """The tendril's database and what lies beside it."""
    return list(data.glob("small.db*"))


async def last(data: Path) -> RunRecord:
    """The newest run, with its steps."""
    [run] = await newest_runs(data, 1)
    found = await read_run(data, run.id)
    assert found
    return found


async def test_a_turn_leaves_a_trace_of_its_steps_and_none_of_its_words(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        await tendril.ask("Hi")
        script.cached_tokens = 5
        script.call("cups", {}).answer(Scripted("Seven.", finish="stop"))
        await tendril.ask("How many?")
        run = await last(tmp_path)
        tables = [await tendril.database.fetch_all(f"SELECT * FROM {t}") for t in TABLES]
    assert (run.conversation, run.profile, run.outcome) == ("kitchen", "standard", "answered")
    assert (run.iterations, run.cached, run.model_profile) == (2, 10, "capable")
    rows = [str(tuple(row)) for table in tables for row in table]
    assert len(rows) == 12
    assert not [row for row in rows if "How many" in row or "Seven" in row]
    assert [(step.kind, step.name, step.verdict) for step in run.steps] == [
        *(
            ("reading", "unclear", ""),
            ("retrieval", "context", ""),
            ("model", "terra", "1 call"),
            ("tool", "cups", "allow"),
        ),
        *(("model", "terra", ""), ("delivery", "small", "")),
    ]
    asked, called, answered = (step for step in run.steps if step.kind in ("model", "tool"))
    names = [part.name for part in asked.parts]
    assert names == ["tools", "persona", "earlier turns", "now", "question"]
    assert [part.name for part in answered.parts] == [*names, "tool calls and results"]
    for step in (asked, answered):
        assert sum(part.tokens for part in step.parts) == step.prompt
    assert (asked.finish_reason, answered.finish_reason) == ("tool_calls", "stop")
    assert asked.began <= called.began <= answered.began
    assert (asked.call_id, called.call_id) == ("", "call_0")


@pytest.mark.parametrize("private", [True, False])
async def test_the_words_of_a_trace_are_those_of_the_turn_and_nobody_is_alone(
    tmp_path: Path, private: bool
) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        await tendril.ask("How many?", private=private)
        run = await last(tmp_path)
        turns = await read_turns(tmp_path, [run])
    words = [message["content"] for message in turns.get(run.id, ())]
    assert words == ([] if private else ["How many?", "ok"])


@pytest.mark.parametrize("trigger", ["standard", "proactive"])
async def test_of_who_is_not_to_be_remembered_there_is_no_trace_and_unasked_only_numbers(
    tmp_path: Path, trigger: Trigger
) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        await tendril.ask(
            "plugh",
            who="adalovelace",
            conversation="kitchen/adalovelace",
            keeps=False,
            trigger=trigger,
        )
        runs = await newest_runs(tmp_path, 10)
        files = b"".join(path.read_bytes() for path in small_files(tmp_path))
    if trigger == "standard":
        assert runs == []
        assert b"adalovelace" not in files
    else:
        [run] = runs
        assert (run.private, run.conversation, run.outcome) == (True, "", "answered")
    assert b"plugh" not in files


async def test_a_turn_that_fails_or_is_stopped_says_so_in_its_trace(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.answer(Scripted("no", status=404))
        await tendril.ask("Hi")
        run = await last(tmp_path)
        assert (run.outcome, run.reason) == ("failed", "RequestRejected")
        script.hang("Well")
        asking = asyncio.create_task(tendril.ask("Hi"))
        await script.arrived(2)
        assert tendril.stop("kitchen")
        assert await asking == TurnResult("", ok=False)
        assert (await last(tmp_path)).outcome == "stopped"


async def test_a_stopped_turn_leaves_memory_as_it_was(tmp_path: Path) -> None:
    deeds: list[str] = []
    waiting = asyncio.Event()

    @tool(effect=True)
    async def act(text: str) -> str:
        """Do something."""
        deeds.append(text)
        return "done"

    @tool
    async def linger() -> str:
        """Wait for ever."""
        waiting.set()
        await asyncio.Event().wait()
        return ""

    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        await tendril.ask("First")
        script.calls(("act", {"text": "x"}), ("linger", {}))
        asking = asyncio.create_task(tendril.ask("Second", tools=[act, linger]))
        await waiting.wait()
        assert tendril.stop("kitchen")
        await asking
        assert deeds == ["x"]
        assert len(await tendril.conversations.turns("kitchen")) == 1
        await tendril.ask("Third")
        assert [text for text in texts(script.requests[-1]) if " asks: " in text] == [
            *("ada asks: First", "ada asks: Third")
        ]


async def test_a_model_may_stay_silent_and_that_is_remembered(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.say('{"response": ""}')
        result = await tendril.ask("Speak?", trigger="proactive")
        assert (result.text, result.ok) == ("", True)
        assert (await last(tmp_path)).outcome == "silent"
        assert (await tendril.ask("Hello again")).ok
        assert script.requests[-1]["messages"][-2] == {"role": "assistant", "content": ""}


async def test_clearing_a_conversation_removes_its_traces(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        for name in ("kitchen", "garden"):
            await tendril.ask("Hi", conversation=name)
        await tendril.clear("kitchen")
        assert [run.conversation for run in await newest_runs(tmp_path, 5)] == ["garden"]


async def test_tools_that_only_read_run_side_by_side_and_others_in_order(tmp_path: Path) -> None:
    order: list[str] = []
    both = asyncio.Barrier(2)

    @tool(reads=True)
    async def one_side() -> str:
        """Wait for the other side."""
        await both.wait()
        return "one"

    @tool(reads=True, timeout=30)
    async def other_side() -> str:
        """Wait for the other side."""
        await both.wait()
        return "other"

    @tool
    async def step(name: str) -> str:
        """Take a step."""
        order.append(f"{name} begins")
        await asyncio.sleep(0)
        order.append(f"{name} ends")
        return name

    tools = [one_side, other_side, step]
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.calls(("other_side", {}), ("one_side", {}))
        script.calls(("step", {"name": "a"}), ("step", {"name": "b"})).say("So.")
        await tendril.ask("Go", tools=tools)
        told = [text.split("\n")[1] for text in texts(script.requests[-1])[-5:] if text]
    assert told == ["other", "one", "a", "b"]
    assert order == ["a begins", "a ends", "b begins", "b ends"]


async def test_a_tool_may_have_a_time_of_its_own(tmp_path: Path) -> None:
    @tool(timeout=0.01)
    async def slow() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return ""

    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.call("slow", {}).say("Well.")
        await tendril.ask("Go", tools=[slow])
        assert "no result within 0.01 seconds" in texts(script.requests[-1])[-1]
