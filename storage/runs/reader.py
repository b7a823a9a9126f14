"""Read-only access to the runs of all tendrils, in their files or schemas."""

from __future__ import annotations

import asyncio
import heapq
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path

from storage.connection import GIVEN
from storage.db.address import PostgresSchema
from storage.db.database import Row, from_micros, to_micros
from storage.memory.conversations import Message
from storage.runs.runs import PartSize, Step
from storage.usage.usage import TokenSpend, UsageAmount

_LOCK_TIMEOUT = 2.0  # seconds to wait for a writer's lock
# A conversation takes one turn at a time, and stores it before the next run begins.
_TURNS = f"""
SELECT id, (
    SELECT messages FROM turns WHERE time >= asked.started
        AND conversation_id = (SELECT id FROM conversations WHERE name = asked.conversation)
        AND NOT EXISTS (SELECT 1 FROM runs WHERE conversation = asked.conversation
            AND started > asked.started AND started <= time)
    ORDER BY turns.id LIMIT 1) AS messages
FROM runs asked WHERE id IN {GIVEN} AND private = 0 AND conversation <> ''"""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as it is displayed.

    `id` is unique among all tendrils (`TENDRIL-NUMBER`). A private run has no conversation name.
    `question_event_id` is the log event of the question, 0 if there is none. `caller` is the run of
    another tendril that asked for this one, `asked` are the runs of others that this one asked for;
    both come without steps.
    """

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
    question_event_id: int = 0
    model_profile: str = ""
    cut: bool = False
    steps: tuple[Step, ...] = ()
    caller: RunRecord | None = None
    asked: tuple[RunRecord, ...] = ()

    @property
    def took(self) -> timedelta | None:
        """The duration, None while the run is open."""
        return self.ended - self.started if self.ended else None

    @property
    def is_without_model(self) -> bool:
        """True if the question was answered without asking a model."""
        return self.outcome == "answered" and self.iterations == 0


async def newest_runs(
    place: Path | PostgresSchema, limit: int, before: datetime | None = None
) -> list[RunRecord]:
    """Return the newest `limit` runs of all tendrils that began `before` a time, newest first, as
    far as they can be read. `place` is the folder of their files, or one of their schemas."""
    sql = "SELECT * FROM runs WHERE started < ? ORDER BY started DESC LIMIT ?"
    until = to_micros(before) if before else 2**62
    found = await _runs(place, sql, until, limit)
    return heapq.nlargest(limit, found, key=lambda run: run.started)


async def read_run(place: Path | PostgresSchema, name: str) -> RunRecord | None:
    """Return the run with the id `name`, with its steps, if there is one."""
    tendril, _, number = name.rpartition("-")
    if not number.isdecimal() or len(number) > 18:  # more digits may exceed SQLite's 64 bits
        return None
    rows = (await _all_rows(place, "SELECT * FROM runs WHERE id = ?", int(number))).get(tendril)
    if not rows:
        return None
    sql = "SELECT * FROM run_steps WHERE run_id = ? ORDER BY number"
    steps = (await _all_rows(place, sql, int(number))).get(tendril, ())
    asked = await _runs(
        place, "SELECT * FROM runs WHERE caller = ? ORDER BY started", rows[0]["key"]
    )
    callers: list[RunRecord] = []
    if caller := rows[0]["caller"]:
        callers = await _runs(place, "SELECT * FROM runs WHERE key = ?", caller)
    taken = []
    for step in steps:
        named = dict(zip(step.keys(), step, strict=True)) | {"ok": bool(step["ok"])}
        del named["run_id"], named["number"]
        # Missing, like some columns of runs, where no tendril was started since their migration.
        named["filters"] = tuple(json.loads(named.get("filters", "[]")))
        parts = json.loads(named.get("parts", "[]"))
        named["parts"] = tuple(PartSize(*part) for part in parts)
        taken.append(Step(**named))
    run, caller = _run(tendril, rows[0]), callers[0] if callers else None
    return replace(run, steps=tuple(taken), caller=caller, asked=tuple(asked))


async def read_turns(
    place: Path | PostgresSchema, runs: Iterable[RunRecord]
) -> Mapping[str, Sequence[Message]]:
    """Return the messages of the turns that runs were for, by the ids of the runs. There are none
    of a private run, nor if the turn was not remembered, or has been forgotten."""
    wanted = {run.id for run in runs}
    numbers = [int(each.rpartition("-")[2]) for each in wanted]
    rows = await _all_rows(place, _TURNS, json.dumps(numbers))
    return {
        name: json.loads(row["messages"])
        for tendril, found in rows.items()
        for row in found
        if (name := f"{tendril}-{row['id']}") in wanted and row["messages"]
    }


async def runs_for_event(place: Path | PostgresSchema, event_id: int) -> list[RunRecord]:
    """Return the runs, without steps, that answered the question of a log event, newest first."""
    found = await _runs(place, "SELECT * FROM runs WHERE anchor = ?", event_id)
    return sorted(found, key=lambda run: run.started, reverse=True)


async def spending(
    place: Path | PostgresSchema, since: date
) -> list[tuple[str, TokenSpend, UsageAmount]]:
    """Return the tokens that each tendril has spent since a day, with its name."""
    found = await _all_rows(place, "SELECT * FROM spending WHERE day >= ?", since.isoformat())
    return [
        (tendril, TokenSpend(date.fromisoformat(day), *spender), UsageAmount(*amounts))
        for tendril, rows in found.items()
        for day, *spender, requests, prompt, cached, completion in rows
        for amounts in [(requests, prompt, cached, completion)]
    ]


async def _runs(place: Path | PostgresSchema, sql: str, *values: str | int) -> list[RunRecord]:
    found = await _all_rows(place, sql, *values)
    return [_run(tendril, row) for tendril, rows in found.items() for row in rows]


async def _all_rows(
    place: Path | PostgresSchema, sql: str, *values: str | int
) -> Mapping[str, Sequence[Row]]:
    """Run a query on the tables of each tendril and return the rows by tendril."""
    if isinstance(place, PostgresSchema):
        from storage.db.postgres.schemas import read_schemas  # needs the extra

        return await asyncio.to_thread(read_schemas, place, "runs", sql, values)

    def read() -> Mapping[str, Sequence[Row]]:
        found = {}
        for path in place.glob("*.db"):
            uri = f"{path.absolute().as_uri()}?mode=ro"
            # A file that has no runs, or cannot be read, is left out.
            with (
                suppress(sqlite3.Error),
                closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_TIMEOUT)) as file,
            ):
                file.row_factory = sqlite3.Row
                found[path.stem] = file.execute(sql, values).fetchall()
        return found

    return await asyncio.to_thread(read)


def _run(tendril: str, row: Row) -> RunRecord:
    private, named = bool(row["private"]), row.keys()
    same = ("profile", "model", "outcome", "reason", "prompt", "cached", "completion", "iterations")
    return RunRecord(
        id=f"{tendril}-{row['id']}",
        tendril=tendril,
        conversation="" if private else row["conversation"],
        private=private,
        started=from_micros(row["started"]),
        ended=from_micros(row["ended"]) if row["ended"] is not None else None,
        forced=bool(row["forced"]),
        question_event_id=row["anchor"],
        model_profile=row["model_profile"] if "model_profile" in named else "",
        cut="cut" in named and bool(row["cut"]),
        **{name: row[name] for name in same},
    )
