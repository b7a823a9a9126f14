"""Benchmark runner: `python -m benchmarks [NAME ...]` runs the named benchmarks, or all of them.

Prints each figure as it is measured and saves all of them as JSON under `benchmarks/results`.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import (
    attention,
    day,
    embeddings,
    failover,
    fairness,
    forgetting,
    hostile,
    irc_latency,
    kills,
    leaving,
    log,
    meaning,
    pages,
    passages,
    postgres,
    prefix,
    prefix_server,
    ray,
    reading,
    reply,
    research,
    scale,
    server,
    short_answers,
    soak,
    startup,
)
from benchmarks.answers import run as answers
from benchmarks.figure import Figure
from benchmarks.strong import run as strong

RESULTS = Path(__file__).parent / "results"
BENCHMARKS: dict[str, Callable[[], AsyncIterator[Figure]]] = {
    "answers": answers.figures,
    "strong": strong.figures,
    "startup": startup.figures,
    "attention": attention.figures,
    "reply": reply.figures,
    "quiz": short_answers.figures,
    "irc": irc_latency.figures,
    "soak": soak.figures,
    "day": day.figures,
    "pages": pages.figures,
    "passages": passages.figures,
    "log": log.figures,
    "meaning": meaning.figures,
    "embeddings": embeddings.figures,
    "failover": failover.figures,
    "fairness": fairness.figures,
    "forgetting": forgetting.figures,
    "hostile": hostile.figures,
    "kills": kills.figures,
    "leaving": leaving.figures,
    "postgres": postgres.figures,
    "prefix": prefix.figures,
    "prefix-server": prefix_server.figures,
    "ray": ray.figures,
    "reading": reading.figures,
    "research": research.figures,
    "scale": scale.figures,
    "server": server.figures,
}


async def run(names: list[str]) -> list[Figure]:
    """Run the named benchmarks in order and return their figures; print each when measured."""
    found: list[Figure] = []
    for name in names:
        print(f"\n{name}")
        async for figure in BENCHMARKS[name]():
            found.append(figure)
            line = f"  {figure.name:<42} {figure.value:>9.2f} {figure.unit:<4} {figure.verdict}"
            print(line.rstrip(), flush=True)
    return found


def save(figures: list[Figure]) -> Path:
    """Write the figures, with core count and Python version, to a JSON file; return its path."""
    now = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{now:%Y%m%dT%H%M%SZ}.json"
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    saved = {"time": now.isoformat(), **machine, "figures": [asdict(f) for f in figures]}
    path.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Run the benchmarks named on the command line; exit with a message for an unknown name."""
    names = sys.argv[1:] or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    print(f"\nsaved in {save(asyncio.run(run(names)))}")


if __name__ == "__main__":
    main()
