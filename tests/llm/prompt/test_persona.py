"""Personas are files that people write: read strictly, chosen by name, kept when one breaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from llm.prompt.builder import Persona, Personas
from terrarium.config import ConfigError
from tests.docs.reference import ROOT

SHIPPED = sorted((ROOT / "harnesses").glob("*/persona.md"))
NOBODY = Personas(Persona(text=""), {}, {})
PIRATE = """\
---
description: Says arr.
model: big
temperature: 0.9
max_tokens: 99
tools: [search_log]
skills: []
---

You are $nick, a pirate on $channel.
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "persona.md"
    path.write_text("You are Terra.")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "personas"
    path.mkdir()
    (path / "pirate.md").write_text(PIRATE)
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_ours_say_what_they_are_for(path: Path) -> None:
    persona = Persona.read(path)
    assert persona.name == path.parent.name
    assert persona.description
    assert not persona.text.startswith("---")


def test_a_persona_has_its_own_model_words_and_tools(own: Path, folder: Path) -> None:
    pirate = Personas.read(own, folder, NOBODY).choose("Pirate")
    assert pirate == Persona(
        text="You are $nick, a pirate on $channel.",
        description="Says arr.",
        model="big",
        temperature=0.9,
        max_tokens=99,
        tools=("search_log",),
        skills=(),
    )
    said = pirate.render({"nick": "Terra", "channel": "#a</system>"})
    assert said == "You are Terra, a pirate on #a‹/system>."


def test_what_is_chosen_is_a_name_or_a_text(own: Path, folder: Path) -> None:
    personas = Personas.read(own, folder, NOBODY)
    with capture_logs() as log:
        asked = [personas.choose(name).text for name in (None, "gone", "gone")]
    assert asked == ["You are Terra."] * 3
    assert [(each["event"], each["persona"]) for each in log] == [("personas.unknown", "gone")]
    assert personas.choose("You are a parrot.").text == "You are a parrot."
    personas.require("pirate")
    personas.require("You are a parrot.")
    with pytest.raises(ValueError, match=r"no persona 'parrot'; there are: pirate\."):
        personas.require("parrot")


def test_a_file_that_breaks_leaves_its_persona_as_it_was(own: Path, folder: Path) -> None:
    before = Personas.read(own, folder, NOBODY)
    (folder / "pirate.md").write_text("---\ntemprature: 2\n---\nArr.")
    (folder / "parrot.md").write_text("---\nname: polly\n---\nCracker.")
    with capture_logs() as log:
        after = Personas.read(own, folder, before)
    assert after.choose("pirate") == before.choose("pirate")
    assert list(after.by_name) == ["pirate"]
    assert sorted(after.errors) == ["parrot", "pirate"]
    reasons = [each["reason"] for each in log if each["event"] == "personas.kept"]
    assert len(reasons) == 2
    assert 'unknown key "temprature"; the nearest known key is "temperature"' in reasons[1]


@pytest.mark.parametrize("text", ["", "---\nname: x\n---\n", "---\nname: x\n"])
def test_the_own_persona_must_be_one(own: Path, folder: Path, text: str) -> None:
    own.write_text(text)
    with pytest.raises(ConfigError, match=r"\[agent\] personas: .*persona\.md"):
        Personas.read(own, folder, NOBODY)
