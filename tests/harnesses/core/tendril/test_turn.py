"""The turns of one conversation follow one another, and those of others go on beside them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from harnesses.core.tendril.turn import TurnRequest, TurnResult
from tests.harnesses.core.tendril.test_base import HI, small, texts
from tests.kit.openai_script import ScriptedOpenAI


async def test_a_conversation_takes_one_question_at_a_time_and_two_run_at_once(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.hang("Seven.")
        first = asyncio.create_task(tendril.ask("first"))
        await script.arrived(1)
        second = asyncio.create_task(tendril.ask("second", who="bob"))
        other = await tendril.ask("other", who="eve", conversation="garden")
        assert other.ok
        assert [texts(request)[-1] for request in script.requests] == [
            "ada asks: first",
            "eve asks: other",
        ]
        assert not first.done()
        script.release()
        assert (await first).text == "Seven."
        assert (await second).ok
        assert texts(script.requests[2])[1:] == ["ada asks: first", "Seven.", "bob asks: second"]


async def test_a_question_whose_asker_leaves_does_not_hold_up_the_next(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.hang("Well")
        first = asyncio.create_task(tendril.ask("first"))
        await script.arrived(1)
        first.cancel()
        await script.client_gone()
        assert (await tendril.ask("second", who="bob")).ok
        assert texts(script.requests[1])[1:] == ["bob asks: second"]


async def test_one_who_gives_up_waiting_lets_the_next_one_have_the_turn(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.hang("Seven.")
        first = asyncio.create_task(tendril.ask("first"))
        await script.arrived(1)
        second = asyncio.create_task(tendril.ask("second", who="bob"))
        third = asyncio.create_task(tendril.ask("third", who="eve"))
        await asyncio.sleep(0)
        assert tendril.turns.pending == 3
        second.cancel()
        script.release()
        assert (await first).ok
        assert (await third).ok
        assert tendril.turns.pending == 0
        assert texts(script.requests[1])[-1] == "eve asks: third"


async def test_what_was_answered_is_remembered_also_when_the_tendril_stops_just_then(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:

        async def deliver(result: TurnResult) -> bool:
            asked.cancel()
            return True

        script.say("Seven.")
        turn = tendril.ask("How many cups?", deliver=deliver)
        asked = asyncio.create_task(turn)
        with pytest.raises(asyncio.CancelledError):
            await asked
        [kept] = await tendril.conversations.turns("kitchen")
        assert [message["content"] for message in kept.messages] == ["How many cups?", "Seven."]


async def test_the_answer_is_delivered_before_the_next_turn_begins(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        delivered, may_end = asyncio.Event(), asyncio.Event()

        async def deliver(result: TurnResult) -> bool:
            assert result.text == "One."
            delivered.set()
            await may_end.wait()
            return True

        script.say("One.").say("Two.")
        first = asyncio.create_task(tendril.turn(replace(HI, deliver=deliver)))
        await delivered.wait()
        second = asyncio.create_task(tendril.turn(HI))
        await asyncio.sleep(0)
        assert len(script.requests) == 1
        may_end.set()
        assert ((await first).text, (await second).text) == ("One.", "Two.")


async def test_what_is_stopped_is_answered_with_nothing_also_when_no_turn_was_running(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        assert not tendril.stop("kitchen")
        script.hang("Seven.")
        first = asyncio.create_task(tendril.ask("first"))
        await script.arrived(1)
        second = asyncio.create_task(tendril.ask("second"))
        await asyncio.sleep(0)
        assert tendril.stop("kitchen")
        nothing = TurnResult("", ok=False)
        assert (await first, await second) == (nothing, nothing)
        assert await tendril.conversations.turns("kitchen") == []
        compacting = asyncio.create_task(tendril.turns.compact("kitchen"))
        await asyncio.sleep(0)
        request = TurnRequest(conversation="kitchen", who="ada", text="first")
        asked = asyncio.create_task(tendril.turn(request))
        await asyncio.sleep(0)
        assert tendril.stop("kitchen")
        assert await asked == TurnResult("", ok=False)
        assert await compacting == 0


async def test_a_question_that_was_just_granted_its_turn_is_stopped_too(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        request = replace(HI, text="first")

        async def ask_and_stop() -> bool:
            await tendril.turn(request)
            # The turn has just gone to the second question, whose task has not run since.
            return tendril.stop("kitchen")

        script.hang("Seven.")
        first = asyncio.create_task(ask_and_stop())
        await script.arrived(1)
        second = asyncio.create_task(tendril.turn(replace(request, text="second")))
        await asyncio.sleep(0)
        script.release()
        assert await first
        assert await second == TurnResult("", ok=False)
        assert not tendril.stop("kitchen")
        assert (await tendril.turn(replace(request, text="third"))).ok
        kept = await tendril.conversations.turns("kitchen")
        assert [turn.messages[0]["content"] for turn in kept] == ["first", "third"]


async def test_a_delivery_that_fails_is_logged_and_the_turn_is_not_remembered(
    tmp_path: Path,
) -> None:
    async def deliver(result: TurnResult) -> bool:
        raise RuntimeError("a bug of the tendril")

    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        request = replace(HI, deliver=deliver)
        with capture_logs() as log:
            assert not (await tendril.turn(request)).ok
        events = [each["event"] for each in log if each["event"].startswith("turn.")]
        assert events == ["turn.done", "turn.failed", "turn.not_delivered"]
        assert await tendril.conversations.turns("kitchen") == []
        assert (await tendril.turn(replace(request, deliver=None))).ok
