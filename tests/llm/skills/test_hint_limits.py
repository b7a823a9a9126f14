"""Hints are asked for short questions only, and no pattern of theirs makes a tendril wait."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from llm.reading.reading import Reading
from llm.skills.hint import HintContext
from llm.skills.registry import MAX_QUESTION_LENGTH, SkillRegistry

RECORDING = '''"""Records."""
asked = []
async def hint(question, context):
    asked.append(len(question))
'''
HEAD = "---\nname: recording\ndescription: Records.\n---\nNothing.\n"

PIECES = (
    *("1", "1 ", "1,", "1.", "- 1", "1-", "(", "((1", "1x", "1e", " ", "a", "a ", "a, ", "the "),
    *("please ", "and ", "one ", "twenty one ", "5 km ", "km in ", "! ", "? ", "'", '"', "what "),
    *(
        "what is ",
        "1 or ",
        "1+1\n",
        "mile ",
        "add 1 to ",
        "d6",
        "2d",
        "time in ",
        "a/b",
        "ä",
        "(1",
        "1+1 ",
    ),
)

RUN = """
import asyncio, resource, sys
from datetime import UTC, datetime
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from llm.reading.reading import Reading
from llm.skills.hint import HintContext
from llm.skills.registry import MAX_QUESTION_LENGTH, SkillRegistry

async def main():
    registry = SkillRegistry.read(Path(sys.argv[1]), SkillRegistry({}, {}))
    contexts = [
        HintContext(datetime.now(UTC), reading=Reading("", kinds))
        for kinds in ({}, {"calculation": 0.5, "dice": 0.5})
    ]
    for piece in sys.argv[2:]:
        for head in ("", "what is ", "convert "):
            for tail in ("", "x\\0"):
                text = (head + piece * MAX_QUESTION_LENGTH)[: MAX_QUESTION_LENGTH - 2] + tail
                for skill in registry.skills.values():
                    for context in contexts:
                        if skill.hint:
                            await skill.hint(text, context)

asyncio.run(main())
"""


async def test_a_long_question_is_handed_to_no_hint(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    folder.mkdir()
    (folder / "SKILL.md").write_text(HEAD)
    (folder / "recording.py").write_text(RECORDING)
    registry = SkillRegistry.read(tmp_path, SkillRegistry({}, {}))
    for length in (10, MAX_QUESTION_LENGTH, MAX_QUESTION_LENGTH + 1, 64_000):
        await registry.matching("1" * length, None)
    (module,) = (
        module for name, module in sys.modules.items() if "recording" in name and "skill" in name
    )
    assert module.asked == [10, MAX_QUESTION_LENGTH]


@pytest.mark.process
async def test_no_hint_works_for_long_on_any_question_of_the_longest_length(
    tmp_path: Path,
) -> None:
    # All of them together have a minute of the processor, which the kernel holds them to: they
    # need a few seconds. One pattern that goes back and forth would need hours.
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN, str(tmp_path), *PIECES
    )
    assert await process.wait() == 0


@pytest.mark.parametrize(
    ("kinds", "question", "is_asked"),
    [
        ({"dice": 0.6}, "is it deep?", True),
        ({"dice": 0.3, "time": 0.3}, "is it deep?", True),
        ({"dice": 0.1, "time": 0.1, "local": 0.8}, "is it deep?", False),
        ({"local": 1.0}, "2+2", True),
        ({}, "is it deep?", True),
    ],
)
async def test_a_skill_with_kinds_is_asked_only_questions_of_these(
    tmp_path: Path, kinds: Mapping[str, float], question: str, is_asked: bool
) -> None:
    for name, head in (
        ("picky", HEAD.replace("---\nN", "kinds: [dice, time]\n---\nN")),
        ("any", HEAD),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "SKILL.md").write_text(head.replace("recording", name))
        (folder / "code.py").write_text("async def hint(question):\n    return 'deep'\n")
    registry = SkillRegistry.read(tmp_path, SkillRegistry({}, {}))
    context = HintContext(datetime.now(UTC), reading=Reading(question, kinds))
    matches = await registry.matching(question, ["picky", "any"], context)
    assert [match.skill.name for match in matches] == ["any", "picky"][: 1 + is_asked]
