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
LENGTH = 65_536
"""Characters of a text: what a server lets people write in one go, and more."""

RUN = """
import resource, sys
from datetime import UTC, datetime
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from llm.reading.slots import Surroundings, read_slots, strip_frame
from llm.reading.times import NotUnderstood, parse_time, without_time
from llm.reading.vocabulary import MAX_TEXT_LENGTH
from storage.passages.words import Expected, asks, question_words, shows

now = datetime(2026, 5, 1, 12, tzinfo=UTC)
for piece in sys.argv[2:]:
    for head in ("", "what is ", "remind me ", "bob, "):
        for tail in ("", "x\\0", "?"):
            for length in (MAX_TEXT_LENGTH, int(sys.argv[1])):
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


@pytest.mark.slow
@pytest.mark.process
async def test_no_pattern_works_for_long_on_any_text_of_any_length() -> None:
    # All of them together have a minute of the processor, which the kernel holds them to: they
    # need a few seconds. One pattern that goes back and forth would need hours.
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", RUN, str(LENGTH), *PIECES)
    assert await process.wait() == 0
