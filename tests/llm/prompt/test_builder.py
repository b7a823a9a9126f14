"""A prompt is put together by rule: the same for a room, and beside a question what that needs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from llm.client.profile import CAPABLE, SMALL
from llm.prompt.builder import CORE, TOOLS, UNTAGGED, Persona, Prompt, PromptBuilder, PromptRequest
from llm.reading.reading import Reading
from llm.tools.toolbox import tool
from storage.memory.skills import FILES, SkillTable, TaughtSkill

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
PERSONA = Persona(text="You are $nick.")
SEARCH = "search_log"


@tool(reads=True)
async def search_log() -> str:
    """Search."""
    return "nothing"


@pytest.fixture
def prompts(tmp_path: Path) -> PromptBuilder:
    own = tmp_path / "persona.md"
    own.write_text("You are $nick.")
    prompts = PromptBuilder()
    prompts.read(own, tmp_path / "personas", tmp_path / "skills")
    return prompts


def asking(text: str, room: str = "irc/#pond", persona: Persona = PERSONA) -> PromptRequest:
    return PromptRequest(text, room, persona, {"nick": "Terra"}, Reading(text), (search_log,))


def beside(prompt: Prompt) -> dict[str, str]:
    return {section.name: section.text for section in prompt.question_sections}


async def test_what_the_operators_skills_say_is_no_order_between_data_tags(
    prompts: PromptBuilder, table: SkillTable
) -> None:
    request = replace(asking("who said 2*3?"), values={"nick": "Terra", "topic": "frogs"})
    prompt = await prompts.build(table, request, CAPABLE)
    assert beside(prompt)["topic"] == "frogs"
    assert "guidance" not in beside(prompt)


async def test_only_a_model_whose_answers_are_repaired_is_to_write_no_tags(
    prompts: PromptBuilder, table: SkillTable
) -> None:
    repaired = replace(CAPABLE, filters_output=True)
    plain, told = [
        (await prompts.build(table, asking("as XML, please"), profile)).system
        for profile in (CAPABLE, repaired)
    ]
    assert UNTAGGED not in plain
    assert UNTAGGED in told


async def test_a_capable_model_is_not_told_how_to_use_a_result_that_it_works_out_itself(
    prompts: PromptBuilder, table: SkillTable
) -> None:
    for text in ("choose between hagen and staging, given what ada said", "why is 17*23 391?"):
        prompt = await prompts.build(table, asking(text), CAPABLE)
        assert not prompt.question_sections, text
        assert not prompt.hints


async def test_a_model_that_cannot_choose_tools_is_told_of_none(
    prompts: PromptBuilder, table: SkillTable
) -> None:
    prompt = await prompts.build(table, asking("who said 2*3?"), replace(CAPABLE, offers="none"))
    assert prompt.system == f"You are Terra.\n\n{CORE}"
    assert SEARCH not in str(prompt.question_sections)
    assert not prompt.toolbox


async def test_a_small_model_gets_one_sentence_and_the_tools_that_the_question_calls_for(
    prompts: PromptBuilder, table: SkillTable
) -> None:
    persona = Persona(text="You are $nick.\n\nA long explanation.", short="You are $nick.")
    sums = await prompts.build(table, asking("what is 2*3?", persona=persona), SMALL)
    assert (sums.system, sums.worked_out) == ("You are Terra.", "2 × 3 = 6")
    assert sums.question_sections == ()
    assert not sums.toolbox
    text = "who said something about frogs yesterday?"
    question = replace(asking(text, persona=persona), reading=Reading(text, {"who_said": 0.9}))
    prompt = await prompts.build(table, question, SMALL)
    assert list(prompt.toolbox.names()) == [SEARCH]
    other = await prompts.build(table, asking("hello"), SMALL)
    assert not other.toolbox
    without = await prompts.build(table, question, replace(SMALL, offers="none"))
    assert not without.toolbox


async def test_a_capable_model_has_one_system_text_and_all_tools_in_one_list_whatever_is_asked(
    prompts: PromptBuilder, table: SkillTable
) -> None:
    questions = ("hi", "what is 2*3?", "who said that?", "roll a die")
    found = [await prompts.build(table, asking(text), CAPABLE) for text in questions]
    assert {prompt.system for prompt in found} == {f"You are Terra.\n\n{CORE} {TOOLS}"}
    schemas = {json.dumps(prompt.toolbox.schemas()) for prompt in found}
    assert len(schemas) == 1
    offered = list(found[0].toolbox.names())
    assert offered == sorted(offered)
    assert {SEARCH, "calculate", "convert_unit", "current_time", "roll_dice"} <= set(offered)


async def test_a_persona_may_have_few_skills_and_tools(
    prompts: PromptBuilder, table: SkillTable
) -> None:
    persona = Persona(text="Arr.", skills=("dice",), tools=("calculate",))
    prompt = await prompts.build(table, asking("what is 2*3?", persona=persona), CAPABLE)
    assert prompt.question_sections == ()
    assert not prompt.toolbox


async def test_what_was_taught_is_shown_and_every_use_is_counted(
    prompts: PromptBuilder, table: SkillTable
) -> None:
    lesson = TaughtSkill("pump", "the pump squeaks", "Oil it.", "ada")
    await table.teach("irc/#pond", lesson, NOON)
    question = asking("why does the pump squeaks? read https://example.org/pump")
    prompt = await prompts.build(table, question, CAPABLE)
    assert "the pump squeaks: Oil it." in beside(prompt)["lessons"]
    await prompts.count_skills(table, "irc/#pond", prompt, well=True)
    assert list(await table.scores(FILES)) == ["web_pages"]
    assert (await table.list_taught("irc/#pond"))[0].uses == 1
