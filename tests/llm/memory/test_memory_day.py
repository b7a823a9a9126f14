"""A day on a busy channel: jobs keep their cadence, neither the file nor the prompts grow on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llm.memory.consolidation import EPISODE_TURNS, FACT_BATCH_TURNS, KEPT_UNSUMMARISED
from storage.memory.conversations import MAX_TURNS
from storage.memory.memories import EPISODES, LEARNT_FACTS, MemoryKind
from tests.kit.day import ROOM, SimulatedDay

LINES = Path(__file__).parents[2] / "data" / "ubuntu-600-lines.txt"
SAID = re.compile(r"\[\d\d:\d\d\] <([^>]+)> (.+)")


@pytest.mark.slow
async def test_over_a_day_jobs_run_at_their_cadence_and_once_and_nothing_grows_for_ever(
    tmp_path: Path,
) -> None:
    text = LINES.read_text(encoding="utf-8", errors="replace")
    lines = [(nick, said) for nick, said in SAID.findall(text) if said.strip()]
    day = SimulatedDay(tmp_path, lines, every=4)
    async with day.lived() as tendril:
        seen, asked = day.seen, day.questions
        assert asked > 120
        watermarks = await tendril.memory.memories.progress(ROOM)
        turns = [turn.id for turn in await tendril.memory.memories.turns(ROOM, 0, 1 << 62, 1_000)]
        assert len(turns) == asked
        made = {purpose: len(spent) for purpose, spent in seen.beside.items()}
        assert made["episode"] == asked // EPISODE_TURNS
        assert made["facts"] == asked // FACT_BATCH_TURNS
        unfolded = len([turn for turn in turns if turn > watermarks.summary])
        assert made["summary"] == (asked - unfolded) // 11
        assert KEPT_UNSUMMARISED <= unfolded <= KEPT_UNSUMMARISED + 10
        assert {job.state for job in await tendril.jobs.all()} == {"done"}
        memories = tendril.memory.memories
        assert len(await memories.latest(ROOM, MemoryKind.EPISODE, -1)) == EPISODES
        assert len(await memories.facts(ROOM)) <= LEARNT_FACTS
        assert max(rows["turns"] for rows in seen.rows) <= MAX_TURNS * asked
        assert max(rows["memories"] for rows in seen.rows) <= EPISODES + 1 + LEARNT_FACTS
        half = len(seen.prompts) // 2
        assert max(seen.prompts[half:]) <= 1.25 * max(seen.prompts[:half])
        assert seen.per_question < 400, seen.per_question  # whatever answers cost
