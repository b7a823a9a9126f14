"""Which questions are answered by lines of the log, by how they were read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from llm.prompt.log_window import LogWindow, quoted_answer
from llm.reading.reading import Reading
from storage.chat_log.event_table import id_at
from storage.db.database import Database
from storage.log import ChatLog
from tests.kit.lines import NOON, POND, said

PUMP = "the greenhouse pump starts at six"
ASKED = "when does the greenhouse pump start?"


@pytest.fixture
async def window(database: Database) -> LogWindow:
    log, texts = ChatLog(database), ("good morning", PUMP, "hello all")
    await log.add([said(text, minute) for minute, text in enumerate(texts)])
    return LogWindow(log=log, place=POND, anchor=id_at(NOON + timedelta(minutes=10)), last=50)


@pytest.mark.parametrize(
    ("kinds", "is_shown"),
    [
        ({"local": 0.9}, True),
        ({"howto": 0.95}, True),
        ({}, True),  # not read
        ({"general": 0.8, "local": 0.15}, True),
        ({"general": 0.99, "local": 0.004}, False),
        ({"time": 0.7, "local": 0.2}, True),  # "which days am I on?"
        ({"time": 0.99, "local": 0.004}, False),
        ({"follow_up": 0.99, "local": 0.004}, False),
        ({"statement": 0.9}, False),
    ],
)
async def test_a_line_answers_what_may_be_about_this_place(
    window: LogWindow, kinds: Mapping[str, float], is_shown: bool
) -> None:
    found = await quoted_answer(window, Reading(ASKED, kinds))
    assert (found is not None and PUMP in found.text) is is_shown
