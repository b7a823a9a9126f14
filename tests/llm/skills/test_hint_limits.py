"""Hints are asked for short questions only, and no pattern of theirs makes a tendril wait."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from llm.skills.hint import HintContext, WorkedOut
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
    *("what is ", "1 or ", "d6", "2d", "time in ", "a/b", "ä", "(1", "1+1 "),
)

RUN = """
import asyncio, resource, sys
from datetime import UTC, datetime
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from llm.skills.hint import HintContext
from llm.skills.registry import MAX_QUESTION_LENGTH, SkillRegistry

async def main():
    registry = SkillRegistry.read(Path(sys.argv[1]), SkillRegistry({}, {}))
    context = HintContext(datetime.now(UTC))
    for piece in sys.argv[2:]:
        for head in ("", "what is ", "convert "):
            for tail in ("", "x\\0"):
                text = (head + piece * MAX_QUESTION_LENGTH)[: MAX_QUESTION_LENGTH - 2] + tail
                for skill in registry.skills.values():
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


async def test_a_hint_with_a_cue_is_asked_only_where_that_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "cued"
    folder.mkdir()
    (folder / "SKILL.md").write_text(HEAD.replace("recording", "cued"))
    cue = 'import re\nHINT_CUE = re.compile("pond")\n'
    (folder / "cued.py").write_text(f"{cue}async def hint(question):\n    return 'deep'\n")
    hint = SkillRegistry.read(tmp_path, SkillRegistry({}, {})).skills["cued"].hint
    assert hint
    context = HintContext(datetime.now(UTC))
    assert await hint("how is the pond?", context) == WorkedOut("deep")
    assert await hint("how is the lake?", context) is None
