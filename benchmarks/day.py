"""Simulated day on #ubuntu: the cost of memory relative to answers, and the growth of prompts.

Six thousand real lines at simulated times; every tenth is a question. The model is scripted and
writes as much as it is allowed to for memory (tests/kit/day.py), so the cost is an upper bound.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from benchmarks import ubuntu
from benchmarks.figure import Figure, percentile
from llm.memory.consolidation import EPISODE_TURNS, FACT_BATCH_TURNS
from storage.chat_log.event import EventType
from tests.kit.day import SimulatedDay

_LINES = 6_000
_EVERY = 10


async def figures() -> AsyncIterator[Figure]:
    """Yield tokens, jobs and table sizes of a day; nothing without the corpus."""
    try:
        real = ubuntu.lines()
    except ubuntu.NoCorpus as error:
        print(f"  left out: {error}")
        return
    said = [(nick, text) for kind, nick, text in real if kind is EventType.PRIVMSG and text.strip()]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as folder:
        day = SimulatedDay(Path(folder), said[:_LINES], _EVERY)
        async with day.lived() as tendril:
            for figure in _figures(day):
                yield figure
            jobs = await tendril.jobs.all()
    yield Figure("jobs that did not end well", sum(job.state != "done" for job in jobs), "", goal=0)


def _figures(day: SimulatedDay) -> list[Figure]:
    seen, half = day.seen, len(day.seen.prompts) // 2
    made = {purpose: len(spent) for purpose, spent in seen.beside.items()}
    growth = max(seen.prompts[half:]) / max(seen.prompts[:half])
    return [
        Figure("questions", day.questions, ""),
        Figure("tokens beside, per token of answers", 100 * seen.share, "%"),
        Figure("tokens beside, per question", seen.per_question, "", goal=400),
        *(
            Figure(f"tokens for each {purpose}", sum(spent) / len(spent), "")
            for purpose, spent in seen.beside.items()
        ),
        Figure(
            "episodes missed or made twice",
            abs(made["episode"] - day.questions // EPISODE_TURNS),
            "",
            0,
        ),
        Figure(
            "studies missed or made twice",
            abs(made["facts"] - day.questions // FACT_BATCH_TURNS),
            "",
            0,
        ),
        Figure("prompt, median", percentile(seen.prompts, 0.5), "tok"),
        Figure("longest prompt, second half to first", growth, "x", goal=1.25),
        Figure("rows of jobs at most", max(rows["jobs"] for rows in seen.rows), ""),
        Figure("rows of memories at most", max(rows["memories"] for rows in seen.rows), ""),
    ]
