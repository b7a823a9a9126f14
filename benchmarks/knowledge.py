"""Share of questions for which it is judged wrongly, by their words, whether only the people of a
channel can answer them.

If such a question is not recognised, a small model invents an answer; if one of general knowledge
is taken for one, people read that nobody has said that here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.figure import Figure
from llm.intents.question_text import is_local

QUESTIONS = Path(__file__).parent / "questions" / "knowledge.json"
MOST_WRONG = 15.0
"""The goal for each half and kind, in percent."""


async def figures() -> AsyncIterator[Figure]:
    """Yield the share of wrong judgements by half and kind."""
    items = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    for half in ("seen", "unseen"):
        for local, kind in ((False, "general knowledge"), (True, "people here")):
            asked = [
                each["question"]
                for each in items
                if each["half"] == half and each["is_local"] is local
            ]
            wrong = [question for question in asked if is_local(question) is not local]
            share = 100 * len(wrong) / len(asked)
            yield Figure(f"{half}, {kind}: judged wrongly", share, "%", goal=MOST_WRONG)
