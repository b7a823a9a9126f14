"""How often a tiny model answers questions of general knowledge, and how often it is right.

Each of `questions/quiz.json` is put to the built-in model as `llm/agent/short_answer.py` puts it,
and then as it is, for an answer in sentences. An answer is right if it has one of the expected
words.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.small_server import small_server
from llm.agent.short_answer import ask_shortly
from llm.client.client import AgentClient, RequestOptions
from llm.client.settings import AgentSettings
from llm.messages.errors import Unsure

QUIZ = Path(__file__).parent / "questions" / "quiz.json"
_MAX_TOKENS = 60  # of an answer in sentences


async def figures() -> AsyncIterator[Figure]:
    """Yield the numbers of questions, of answers given, and of those that are right."""
    items = json.loads(QUIZ.read_text(encoding="utf-8"))
    given = right = sentences_right = 0
    options = RequestOptions("quiz", temperature=0.0, max_tokens=_MAX_TOKENS)
    async with small_server() as (http, _):
        settings = AgentSettings(api_url=f"{http.base_url}/v1", model="terra")
        async with AgentClient.open(settings, lambda *_: None) as client:
            for item in items:
                question, expected = item["question"], item["answers"]
                asked = [{"role": "user", "content": question}]
                sentences_right += is_right((await client.chat(asked, options)).text, expected)
                try:
                    reply = await ask_shortly(client, options, question)
                except Unsure:
                    continue
                given += 1
                right += is_right(reply.text, expected)
    yield Figure("quiz: questions", len(items), "")
    yield Figure("quiz: answers given", given, "")
    yield Figure("quiz: right of these", right, "")
    yield Figure("quiz: right of all in sentences", sentences_right, "")


def is_right(answer: str, expected: list[str]) -> bool:
    """Return whether an answer has one of the expected words, at the beginning of a word."""
    return any(re.search(rf"(?<!\w){re.escape(each)}", answer.lower()) for each in expected)
