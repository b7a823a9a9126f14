"""The runs of all tendrils, read from their files as they stand."""

from __future__ import annotations

import asyncio
import heapq
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from storage.db.database import from_micros, to_micros
from storage.runs.runs import Step

_PATIENCE = 2.0  # seconds to wait for who writes


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as it is shown: `id` names it among all tendrils, a private one names nobody."""

    id: str
    tendril: str
    conversation: str
    private: bool
    profile: str
    model: str
    started: datetime
    ended: datetime | None
    outcome: str
    reason: str
    prompt: int
    cached: int
    completion: int
    iterations: int
    forced: bool
    question: str
    answer: str
    steps: tuple[Step, ...] = ()

    @property
    def took(self) -> timedelta | None:
        """From its begin to its end."""
        return self.ended - self.started if self.ended else None

    @property
    def is_without_model(self) -> bool:
        """True when the answer was found without asking a model."""
        return self.outcome == "answered" and self.iterations == 0


async def newest_runs(folder: Path, limit: int, before: datetime | None = None) -> list[RunRecord]:
    """Return the newest runs of the tendrils whose files are in `folder`, the newest first: those
    that began `before` a time. Files that cannot be read are left out."""
    return await asyncio.to_thread(_newest_runs, folder, limit, before)


async def read_run(folder: Path, name: str) -> RunRecord | None:
    """Return the run of that id with its steps, if there is one."""
    return await asyncio.to_thread(_read_run, folder, name)


def _newest_runs(folder: Path, limit: int, before: datetime | None) -> list[RunRecord]:
    sql = "SELECT * FROM runs WHERE started < ? ORDER BY started DESC LIMIT ?"
    until = to_micros(before) if before else 2**62
    found = [
        _run(path.stem, row)
        for path in folder.glob("*.db")
        for row in _rows(path, sql, [until, limit])
    ]
    return heapq.nlargest(limit, found, key=lambda run: run.started)


def _read_run(folder: Path, name: str) -> RunRecord | None:
    tendril, _, number = name.rpartition("-")
    paths = {path.stem: path for path in folder.glob("*.db")}
    if tendril not in paths or not number.isdecimal() or len(number) > 18:
        return None
    rows = _rows(paths[tendril], "SELECT * FROM runs WHERE id = ?", [int(number)])
    sql = "SELECT * FROM run_steps WHERE run_id = ? ORDER BY number"
    steps = map(_step, _rows(paths[tendril], sql, [int(number)]))
    return _run(tendril, rows[0], tuple(steps)) if rows else None


def _rows(path: Path, sql: str, values: Sequence[int]) -> list[sqlite3.Row]:
    """Return the rows of a query; none of a file without runs, or one that cannot be read."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE)) as file:
            file.row_factory = sqlite3.Row
            return file.execute(sql, values).fetchall()
    except sqlite3.Error:
        return []


def _step(row: sqlite3.Row) -> Step:
    _run, _number, kind, name, ok, *rest = row
    return Step(kind, name, bool(ok), *rest)


def _run(tendril: str, row: sqlite3.Row, steps: tuple[Step, ...] = ()) -> RunRecord:
    private = bool(row["private"])
    return RunRecord(
        id=f"{tendril}-{row['id']}",
        tendril=tendril,
        conversation="" if private else row["conversation"],
        private=private,
        profile=row["profile"],
        model=row["model"],
        started=from_micros(row["started"]),
        ended=from_micros(row["ended"]) if row["ended"] is not None else None,
        outcome=row["outcome"],
        reason=row["reason"],
        prompt=row["prompt"],
        cached=row["cached"],
        completion=row["completion"],
        iterations=row["iterations"],
        forced=bool(row["forced"]),
        question=row["question"],
        answer=row["answer"],
        steps=steps,
    )
