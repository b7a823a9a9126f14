"""No pattern that reads what people write makes a tendril wait, however long the text is."""

from __future__ import annotations

import asyncio
import sys

import pytest

PIECES = (
    *("1", "1 ", "1,", "1:", "10m ", "a ", "and ", "at ", "at 9 ", "in ", "on ", "every ", "half "),
    *("monday ", "monday and ", "tomorrow ", "please ", ", ", ",", ";:", " ", "the ", "what ", "A"),
    *("who said ", "when did ", "yesterday ", "last week ", "how ", "what the ", "[a", "a, ", "?"),
    *("remind me ", "to ", "in an hour and ", "2026-", "1.1.", "january ", "ä", "aa-", "'s "),
)
OF_SUMS = (
    *("1", "1 ", "1,", "1.", "- 1", "1-", "(", "((1", "1x", "1e", " ", "a", "a ", "a, ", "the "),
    *("please ", "and ", "one ", "twenty one ", "5 km ", "km in ", "! ", "? ", "'", '"', "what "),
    *("what is ", "1 or ", "1+1\n", "mile ", "add 1 to ", "d6", "2d", "time in ", "a/b", "ä"),
    *("(1", "1+1 "),
)

READ = """
from datetime import UTC, datetime
from llm.reading.reading import Surroundings, read_slots, strip_frame
from llm.reading.times import NotUnderstood, parse_time, without_time
from llm.reading.vocabulary import MAX_TEXT_LENGTH
from storage.passages.words import Expected, asks, question_words, shows

now = datetime(2026, 5, 1, 12, tzinfo=UTC)
for piece in sys.argv[1:]:
    for head in ("", "what is ", "remind me ", "bob, "):
        for tail, longer in (("", ()), ("?", ()), ("x\\0", [65_536])):
            for length in (MAX_TEXT_LENGTH, *longer):  # what a server lets people write, and more
                text = (head + piece * length)[: length - len(tail)] + tail
                read_slots("remind", text, Surroundings(now, UTC, "eve", ("bob", "ada")))
                strip_frame(text, "remind")
                without_time(text)
                try:
                    parse_time(text, now, UTC)
                except NotUnderstood:
                    pass
                question_words(text)
                asks(text)
                for expected in Expected:
                    shows(expected, text)
"""
HINT = """
import asyncio
from datetime import UTC, datetime
from pathlib import Path
from llm.reading.reading import Reading
from llm.skills.hint import HintContext
from llm.skills.registry import MAX_QUESTION_LENGTH, SkillRegistry

async def main():
    registry = SkillRegistry.read(Path("nowhere"), SkillRegistry({}, {}))
    contexts = [
        HintContext(datetime.now(UTC), reading=Reading("", kinds))
        for kinds in ({}, {"calculation": 0.5, "dice": 0.5})
    ]
    for piece in sys.argv[1:]:
        for head in ("", "what is ", "convert "):
            for tail in ("", "x\\0"):
                text = (head + piece * MAX_QUESTION_LENGTH)[: MAX_QUESTION_LENGTH - 2] + tail
                for skill in registry.skills.values():
                    for context in contexts:
                        if skill.hint:
                            await skill.hint(text, context)

asyncio.run(main())
"""
LIMIT = "import resource, sys\nresource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "pieces"), [(READ, PIECES), (HINT, OF_SUMS)], ids=["read", "hint"]
)
async def test_no_pattern_works_for_long_on_any_text_of_any_length(
    code: str, pieces: tuple[str, ...]
) -> None:
    # All of them together have a minute of the processor, which the kernel holds them to: they
    # need a few seconds. One pattern that goes back and forth would need hours.
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", LIMIT + code, *pieces)
    assert await process.wait() == 0
