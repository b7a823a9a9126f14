"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all; print and save."""

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
    context,
    day,
    embeddings,
    failover,
    fairness,
    forgetting,
    hostile,
    irc_latency,
    leaving,
    log,
    meaning,
    pages,
    passages,
    postgres,
    prefix,
    prefix_server,
    ray,
    reply,
    scale,
    server,
    soak,
    startup,
)
from benchmarks.answers import run as answers
from benchmarks.figure import Figure

RESULTS = Path(__file__).parent / "results"
BENCHMARKS: dict[str, Callable[[], AsyncIterator[Figure]]] = {
    "answers": answers.figures,
    "startup": startup.figures,
    "attention": attention.figures,
    "reply": reply.figures,
    "irc": irc_latency.figures,
    "soak": soak.figures,
    "context": context.figures,
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
    "leaving": leaving.figures,
    "postgres": postgres.figures,
    "prefix": prefix.figures,
    "prefix-server": prefix_server.figures,
    "ray": ray.figures,
    "scale": scale.figures,
    "server": server.figures,
}


async def run(names: list[str]) -> list[Figure]:
    """All figures of the named benchmarks, each printed as it comes."""
    found: list[Figure] = []
    for name in names:
        print(f"\n{name}")
        async for figure in BENCHMARKS[name]():
            found.append(figure)
            line = f"  {figure.name:<42} {figure.value:>9.2f} {figure.unit:<4} {figure.verdict}"
            print(line.rstrip(), flush=True)
    return found


def save(figures: list[Figure]) -> Path:
    """Write the figures and the machine they were measured on; the file's path."""
    now = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{now:%Y%m%dT%H%M%SZ}.json"
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    saved = {"time": now.isoformat(), **machine, "figures": [asdict(f) for f in figures]}
    path.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Run what the command line names."""
    names = sys.argv[1:] or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    print(f"\nsaved in {save(asyncio.run(run(names)))}")


if __name__ == "__main__":
    main()
