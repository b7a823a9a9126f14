"""How well questions are understood: the kind of the unseen sentences, false commands, languages,
and the time that it takes.

The unseen half of `questions/reading` is only counted, never looked at to improve anything. A false
command is a sentence of another kind that is answered as a command in plain words, by the rules for
a capable or a tiny model; it is also looked for in real questions of #ubuntu, which people asked
each other. Sentences that are only read as a kind of command, with a certainty of 0.9, are counted
too: most of these lack what the command needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from agent_server.engines.embeddings import EmbeddingEngine
from agent_server.settings.models import ModelSettings
from benchmarks.figure import Figure, percentile
from benchmarks.reading_fit import LANGUAGES, REAL, embed, sentences
from harnesses.core.commands.table import EXACT, plain_command
from llm.client.profile import CAPABLE, TINY, Profile
from llm.reading.reading import (
    FROM_HERE,
    MOST_TOKENS,
    Reading,
    Surroundings,
    classifier,
    read_slots,
    shorten,
)
from terrarium.config import Config

KNOWLEDGE = Path(__file__).parent / "questions" / "knowledge.json"
COMMANDS = frozenset((
    "help", "remind", "reminders", "cancel_reminder", "schedule", "remember", "recall",
    "forget_fact", "forget_me", "nolog", "clear", "search", "who_said", "said_by", "when_said",
    "counts", "missed", "links", "present", "operators", "topic", "seen", "stop", "more", "tell",
    "dice", "calculation", "time", "page",
))  # fmt: skip
_CERTAIN = 0.9
_NAMES = {"about_bot": "about"}  # kinds that a command answers, but that are none
_RIGHT_ENGLISH, _RIGHT_OTHERS, _MOST_WRONG = 95.0, 88.0, 3.0  # percent
_MOST_MILLISECONDS, _MOST_ALWAYS = 25.0, 50.0
_STRANGE = (
    "x", "?" * 400, "\u202e" * 300, "漢字" * 200, "a" * 4_000, "🙂" * 500, "1+" * 1_000, "ё" * 600,
    "q7x@k2#" * 50, "1 2 3 4 5 6 7 8 9 0 " * 30, "zażółć gęślą jaźń " * 30, "สวัสดีครับ" * 40,
    "".join(chr(33 + 37 * each % 93) for each in range(400)), "שלום עולם " * 40, "𓀀𓁀𓂀" * 60,
)  # fmt: skip


async def figures() -> AsyncIterator[Figure]:
    """Yield the shares by language, and the times."""
    others: list[tuple[str, Reading]] = []  # sentences that are no command, with their kinds
    for language in LANGUAGES:
        labelled = sentences("unseen", language)
        read = await _readings([text for _, text in labelled])
        right = sum(each.kind == kind for each, (kind, _) in zip(read, labelled, strict=True))
        goal = _RIGHT_ENGLISH if language == "en" else _RIGHT_OTHERS
        share = 100 * right / len(labelled)
        yield Figure(f"{language}: kind right", share, "%", least=goal)
        kinds = [kind for kind, _ in labelled]
        others += [(k, each) for k, each in zip(kinds, read, strict=True) if k not in COMMANDS]
        foreign = sum(each.is_foreign is (language != "en") for each in read)
        yield Figure(f"{language}: foreign or not, right", 100 * foreign / len(read), "%")
    items = json.loads(KNOWLEDGE.read_text(encoding="utf-8"))
    for is_local, name in ((False, "general knowledge"), (True, "people here")):
        texts = [
            each["question"]
            for each in items
            if each["half"] == "unseen" and each["is_local"] is is_local
        ]
        read = await _readings(texts)
        wrong = sum(each.is_one_of(FROM_HERE) is not is_local for each in read)
        share = 100 * wrong / len(texts)
        yield Figure(f"{name}: judged wrongly", share, "%", goal=_MOST_WRONG)
        others += [("", each) for each in read]
    real = [(kind, text) for kind, text in sentences("unseen", REAL) if kind not in COMMANDS]
    read = await _readings([text for _, text in real])
    others += [(kind, each) for (kind, _), each in zip(real, read, strict=True)]
    for profile in (CAPABLE, TINY):
        false = sum(_is_command(kind, each, profile) for kind, each in others)
        label = f"{profile.name}: false commands in {len(others)} sentences"
        yield Figure(label, false, "", goal=0)
    false = sum(each.kind in COMMANDS and each.certainty >= _CERTAIN for _, each in others)
    yield Figure("read as a kind of command, surely", false, "")
    usual, strange = await _milliseconds()
    yield Figure("a question, median", percentile(usual, 0.5), "ms", goal=_MOST_MILLISECONDS)
    yield Figure("a question, p95", percentile(usual, 0.95), "ms")
    yield Figure("any text, longest", max(strange), "ms", goal=_MOST_ALWAYS)


def _is_command(kind: str, reading: Reading, profile: Profile) -> bool:
    around = Surroundings(datetime.now(UTC), UTC)
    known = replace(reading, slots=read_slots(reading.kind, reading.text, around))
    command = plain_command(known, profile)
    # "ping" is a command in its exact words, and small talk.
    is_exact = reading.text.casefold().strip(" .!") in EXACT
    return command is not None and not is_exact and command.name != _NAMES.get(kind)


async def _readings(texts: list[str]) -> list[Reading]:
    vectors: np.ndarray = await embed(texts)
    return [_read(text, vector.tolist()) for text, vector in zip(texts, vectors, strict=True)]


def _read(text: str, vector: Sequence[float]) -> Reading:
    head, said = classifier(), shorten(text)
    features = head.features(said, vector)
    kinds, languages = (features.probabilities(rows) for rows in (head.kinds, head.languages))
    return Reading(text, kinds, languages)


async def _milliseconds() -> tuple[list[float], list[float]]:
    """Return the times to embed and to judge usual questions, and strange texts."""
    engine = EmbeddingEngine(Config({}, None, Path("data")).section(ModelSettings).folder)

    async def timed(text: str) -> float:
        began = time.perf_counter()
        made = await engine.embeddings(
            {
                "input": shorten(text),
                "input_type": "query",
                "encoding_format": "float",
                "truncate_prompt_tokens": MOST_TOKENS,
            }
        )
        _read(text, made["data"][0]["embedding"])
        return 1_000 * (time.perf_counter() - began)

    async with engine.lifespan():
        await timed("the child process is started by the first text")
        texts = [text for _, text in sentences("unseen", "en")]
        return [await timed(text) for text in texts], [await timed(text) for text in _STRANGE]
