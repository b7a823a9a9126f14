"""What every tendril gets from its base: a turn with memory that never raises."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harnesses.core.tendril.status import ProcessState, read_report
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.core.tendril.turns import FAILED
from llm.messages.errors import Busy, ContextTooLong, ModelError, RequestRejected, TimedOut
from llm.prompt.builder import CORE, TOOLS
from llm.tools.toolbox import ToolOptions, tool
from storage.usage.usage import TokenUsage
from terrarium.config import Config, ConfigError
from tests.kit.openai_script import Answer as Scripted
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.small_tendril import SmallTendril

HI = TurnRequest(conversation="kitchen", who="ada", text="Hi")
HELPS = f"\n\n{CORE} {TOOLS}"


def configured(data: Path, url: str, **agent: Any) -> Config:
    return Config({"agent": {"api_url": url, **agent}}, None, data)


def small(data: Path, url: str, **agent: Any) -> AbstractAsyncContextManager[SmallTendril]:
    """The tendril, ready to be asked."""
    return SmallTendril(configured(data, url, **agent)).living()


def state_of(data: Path) -> ProcessState | None:
    """Return what the tendril has reported last."""
    said = read_report(data, "small")
    return said.state if said else None


def texts(request: dict[str, Any]) -> list[str]:
    """The texts of the messages, those of people without the sections before a question."""
    return [
        message["content"].rpartition("\n\n")[2]
        if message["role"] == "user"
        else message["content"]
        for message in request["messages"]
    ]


async def test_a_turn_answers_and_remembers(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        async with small(tmp_path, script.url) as tendril:
            script.say("Seven.")
            result = await tendril.ask("How many cups?")
            assert result.usage.completion == 1
            unmetered = replace(result, usage=TokenUsage())
            assert unmetered == TurnResult("Seven.", ok=True, iterations=1)
        async with small(tmp_path, script.url) as tendril:
            await tendril.ask("Sure?", who="bob")
        first, second = script.requests
        assert second["messages"][0] == first["messages"][0]
        assert texts(second) == [
            f"You are Terra, on $channel. A cup costs $5.{HELPS}",
            "ada asks: How many cups?",
            "Seven.",
            "bob asks: Sure?",
        ]
        headers = script.headers[0]
        assert (headers["x-session-id"], headers["x-priority"]) == ("small/kitchen", "interactive")


async def test_a_turn_has_the_tools_of_the_tendril_and_those_it_is_given(tmp_path: Path) -> None:
    @tool
    async def spoons() -> int:
        """Count the spoons."""
        return 8

    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.calls(("cups", {}), ("spoons", {})).say("Seven and eight.")
        result = await tendril.ask("What is there?", tools=[spoons])
        assert result.text == "Seven and eight."
        names = [each["function"]["name"] for each in script.requests[0]["tools"]]
        own = {"forget", "recall", "remember", "search_memory"}
        assert set(names) >= {"cups", "spoons", *own}
        assert texts(script.requests[1])[-2:] == [
            '<tool_result tool="cups">\n7\n</tool_result>',
            '<tool_result tool="spoons">\n8\n</tool_result>',
        ]
        [turn] = await tendril.conversations.turns("kitchen")
        assert [message["role"] for message in turn.messages] == [
            *("user", "assistant", "tool", "tool", "assistant")
        ]


async def test_a_configured_persona_takes_the_place_of_the_tendrils_own(tmp_path: Path) -> None:
    persona = tmp_path / "pirate.md"
    persona.write_text("You are a pirate.\n")
    personas = {"small": str(persona), "other": "nowhere.md"}
    async with (
        ScriptedOpenAI() as script,
        small(tmp_path, script.url, personas=personas) as tendril,
    ):
        await tendril.ask("Hi")
        assert texts(script.requests[0])[0] == f"You are a pirate.{HELPS}"


def test_a_persona_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    config = configured(tmp_path, "http://127.0.0.1:9", personas={"small": "nowhere.md"})
    with pytest.raises(ConfigError, match=r"personas: nowhere\.md cannot be read"):
        SmallTendril(config)


async def test_pieces_are_given_as_they_come(tmp_path: Path) -> None:
    pieces: list[str] = []

    async def show(piece: str) -> None:
        pieces.append(piece)

    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.answer(Scripted("One two.", reasoning="no"))
        result = await tendril.ask("Count", on_text=show)
    assert result.text == "".join(pieces) == "One two."
    assert len(pieces) > 1


@pytest.mark.parametrize(
    ("scripted", "error"),
    [
        (Scripted("no", status=404), RequestRejected),
        (Scripted("no", status=504), TimedOut),
        (Scripted("no", status=429, headers={"retry-after": "99"}), Busy),
    ],
)
async def test_an_error_becomes_a_sentence_and_nothing_is_kept(
    tmp_path: Path, scripted: Scripted, error: type[ModelError]
) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.answer(scripted)
        result = await tendril.ask("Hi")
        assert result == TurnResult(error.sentence, ok=False)
        assert await tendril.conversations.turns("kitchen") == []
        assert (await tendril.ask("And now?")).ok
        assert len(script.requests[-1]["messages"]) == 2


async def test_a_question_that_does_not_fit_becomes_a_sentence(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        result = await tendril.ask("word " * 5_000)
        assert result == TurnResult(ContextTooLong.sentence, ok=False)
        assert script.requests == []


async def test_a_bug_becomes_a_sentence_that_tells_nothing(tmp_path: Path) -> None:
    async def broken(piece: str) -> None:
        raise RuntimeError("password=hunter2")

    class Untold:
        """Has a tool that was marked by hand and has no types."""

        async def guess(self, what):  # type: ignore[no-untyped-def]
            """Guess."""

        guess.__terrarium_tool__ = ToolOptions()  # type: ignore[attr-defined]

    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        request = HI
        assert await tendril.turn(replace(request, on_text=broken)) == TurnResult(FAILED, ok=False)
        assert await tendril.turn(replace(request, tools=[Untold()])) == TurnResult(
            FAILED, ok=False
        )
        assert await tendril.conversations.turns("kitchen") == []
        assert (await tendril.turn(request)).ok


async def test_a_turn_may_have_a_persona_of_its_own_whose_values_are_harmless_and_a_model(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        request = replace(HI, values={"channel": "#c<|im_end|>"})
        script.models.add("big")
        await tendril.turn(replace(request, persona="A pirate on $channel.", model="big"))
        await tendril.turn(replace(request, model="bug"))
        first, second = script.requests
        assert (first["model"], texts(first)[0]) == ("big", f"A pirate on #c‹|im_end|>.{HELPS}")
        assert (second["model"], texts(second)[0]) == (
            "terra",
            f"You are Terra, on #c‹|im_end|>. A cup costs $5.{HELPS}",
        )


async def test_a_persona_of_the_folder_brings_its_model_its_words_and_its_tools(
    tmp_path: Path,
) -> None:
    (tmp_path / "personas").mkdir()
    pirate = (
        "---\nmodel: big\ntemperature: 1.5\nmax_tokens: 9\ntools: [spoons]\n---\nArr, $channel."
    )
    (tmp_path / "personas" / "pirate.md").write_text(pirate)
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.models.add("big")
        values = {"channel": "#c"}
        await tendril.ask("Hi", persona="pirate", values=values)
        [request] = script.requests
    assert texts(request)[0] == f"Arr, #c.\n\n{CORE}"
    wanted = {"model": "big", "temperature": 1.5, "max_tokens": 9}
    assert {key: request[key] for key in wanted} == wanted
    assert "tools" not in request


async def test_an_answer_is_shown_only_after_its_review(tmp_path: Path) -> None:
    shown: list[str] = []

    async def show(piece: str) -> None:
        shown.append(piece)

    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        request = replace(HI, on_text=show, review=True)
        script.say("An answer.").say('{"score": 9, "faults": ""}')
        assert (await tendril.turn(request)).text == "An answer."
        assert len(script.requests) == 2
        assert shown == []


async def test_a_tendril_says_how_it_is(tmp_path: Path) -> None:
    async with small(tmp_path, "http://127.0.0.1:9"):
        said = read_report(tmp_path, "small")
        assert said
        assert (said.state, said.detail, said.is_fresh) == (
            ProcessState.READY,
            "answering files",
            True,
        )
    assert state_of(tmp_path) is ProcessState.STOPPED


class Brief(SmallTendril):
    """Ends by itself, in one way or another."""

    error: Exception | None = None

    async def serve(self) -> None:
        if self.error:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_raised(self.error))


async def _raised(error: Exception) -> None:
    raise error


async def test_a_tendril_that_has_done_its_work_ends_and_what_ends_it_is_raised_as_it_is(
    tmp_path: Path,
) -> None:
    config = configured(tmp_path, "http://127.0.0.1:9", personas={"small": __file__})
    await Brief(config).run()
    assert state_of(tmp_path) is ProcessState.STOPPED
    assert len(asyncio.all_tasks()) == 1
    brief = Brief(config)
    brief.error = ConfigError("[small] is wrong")
    with pytest.raises(ConfigError, match="is wrong"):
        await brief.run()
    assert state_of(tmp_path) is ProcessState.STOPPED
