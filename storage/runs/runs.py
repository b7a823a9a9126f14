"""The runs of a tendril: a row for each turn, with its steps and its effects.

They do not contain what people and the model have said, except in the results of effects: the words
of a run are in its turn (`storage.memory.conversations`), as long as that is remembered.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import datetime, timedelta

from storage.db.database import Connection, Repository, to_micros
from storage.db.errors import Unavailable

_BEGIN = """
INSERT INTO runs (key, conversation, private, anchor, profile, model, started, outcome, caller,
    model_profile)
VALUES (:key, :conversation, :private, :question_event_id, :profile, :model, :started, 'running',
    :caller, :model_profile)
ON CONFLICT (key) DO UPDATE SET outcome = 'running', ended = NULL, reason = ''"""
_END = """
UPDATE runs SET ended = ?, outcome = ?, reason = ?, prompt = ?, cached = ?, completion = ?,
    iterations = ?, forced = ?, cut = ?, quotes = ? WHERE key = ?"""
_STEP = """
INSERT INTO run_steps (run_id, number, kind, name, ok, ms, verdict, prompt, cached, completion,
    began, call_id, finish_reason, filters, parts)
SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM runs WHERE key = ?"""
_ID = "(SELECT id FROM runs WHERE key = ?)"
_MAX_RUNS = 20_000  # runs that are kept, the newest


@dataclass(frozen=True, slots=True)
class Run:
    """A run that begins.

    `key` is the same for all attempts at one turn. `profile` is the trigger of the run,
    `model_profile` the profile of its model (`llm.client.profile`). `caller` is the key of the run
    of another tendril that asked for this one, "" for none.
    """

    key: str
    conversation: str
    profile: str
    model: str
    started: datetime
    question_event_id: int = 0
    private: bool = False
    caller: str = ""
    model_profile: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """A change that a run makes at most once. Without a result it is unknown if it was made."""

    key: str
    tool: str
    result: str | None = None


@dataclass(frozen=True, slots=True)
class PartSize:
    """The size of one part of a prompt: its approximate tokens, and its lines."""

    name: str
    tokens: int
    lines: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A call of the model or of a tool: its duration in milliseconds and its tokens. `verdict` is
    that of the guard rails.

    `began` are the milliseconds from the start of the run. A tool call has the id `call_id` in the
    turn. Of a model call, `parts` are the sizes of its prompt in order, and `filters` the names of
    the filters that have changed its reply.
    """

    kind: str
    name: str
    ok: bool
    ms: int
    verdict: str = ""
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    began: int = 0
    call_id: str = ""
    finish_reason: str = ""
    filters: tuple[str, ...] = ()
    parts: tuple[PartSize, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a run.

    `outcome` is answered, silent, failed, stopped or interrupted; `reason` is the kind of
    error. `cut`: the answer ends before its end. `quotes` are the ids of the log lines that the
    answer or the results of tools repeat.
    """

    time: datetime
    outcome: str
    reason: str = ""
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    iterations: int = 0
    forced: bool = False
    cut: bool = False
    quotes: frozenset[int] = frozenset()


class Runs(Repository):
    """The runs in a database file. All methods raise Unavailable."""

    async def begin(self, run: Run) -> list[Effect]:
        """Open a run, or reopen it for another attempt; return the effects recorded so far."""

        def insert(db: Connection) -> list[Effect]:
            db.execute(_BEGIN, asdict(run) | {"started": to_micros(run.started)})
            sql = f"SELECT key, tool, result FROM effects WHERE run_id = {_ID}"
            return [Effect(*row) for row in db.execute(sql, [run.key])]

        # Only effects have to survive a power failure; `begin_effect` writes them durably.
        return await self._database.write(insert, durable=False)

    async def begin_effect(self, run: str, effect: Effect) -> None:
        """Record, durably, that an effect is about to happen. Raises Unavailable also if there is
        no such run: the effect must not happen then."""
        count = await self._database.execute(
            "INSERT INTO effects SELECT id, ?, ?, NULL FROM runs WHERE key = ?"
            " ON CONFLICT (run_id, key) DO UPDATE SET tool = excluded.tool, result = NULL",
            [effect.key, effect.tool, run],
        )
        if count == 0:
            raise Unavailable("the run has been removed")

    async def end_effect(self, run: str, effect: Effect) -> None:
        """Record the result of an effect."""
        sql = f"UPDATE effects SET result = ? WHERE run_id = {_ID} AND key = ?"
        await self._database.execute(sql, [effect.result, run, effect.key])

    async def drop_effect(self, run: str, key: str) -> None:
        """Remove an effect that did not happen after all."""
        sql = f"DELETE FROM effects WHERE run_id = {_ID} AND key = ?"
        await self._database.execute(sql, [run, key])

    async def end(self, run: str, ended: RunEnd, steps: Sequence[Step]) -> None:
        """Close a run, unless it was deleted. Its steps replace those of earlier attempts."""
        time, *numbers, quotes = astuple(ended)
        values = [to_micros(time), *numbers, json.dumps(list(quotes)), run]
        rows = []
        for number, step in enumerate(steps):
            *plain, filters, parts = astuple(step)
            rows.append([number, *plain, json.dumps(filters), json.dumps(parts), run])

        def update(db: Connection) -> None:
            db.execute(_END, values)
            db.execute(f"DELETE FROM run_steps WHERE run_id = {_ID}", [run])
            db.executemany(_STEP, rows)

        await self._database.write(update, durable=False)

    async def interrupt(self) -> int:
        """Close all runs that an earlier process has left open; return how many."""
        sql = "UPDATE runs SET outcome = 'interrupted', ended = started WHERE outcome = 'running'"
        return await self._database.execute(sql)

    async def expire(self, now: datetime, days: int) -> None:
        """Delete closed runs older than `days` (0: any), or beyond the newest 20,000."""
        oldest = to_micros(now - timedelta(days=days)) if days else -1
        await self._database.execute(
            "DELETE FROM runs WHERE outcome != 'running' AND (started < ? OR id <="
            " (SELECT max(id) FROM runs) - ?)",
            [oldest, _MAX_RUNS],
        )

    async def clear(self, conversation: str) -> int:
        """Delete the runs of a conversation; return how many."""
        sql = "DELETE FROM runs WHERE conversation = ?"
        return await self._database.execute(sql, [conversation])

    async def forget(
        self, lines: Collection[int], network: str | None, names: Collection[str]
    ) -> int:
        """Delete the runs that belong to a person and return how many there were.

        They are those whose question is one of the person's `lines`, whose answer or tools repeat
        one, or whose conversation ends with one of the `names` (on `network`, or on all).
        """
        folded, theirs = {name.lower() for name in names}, frozenset(lines)

        def is_theirs(conversation: str) -> bool:
            # On IRC: `network/#channel/nick` or `network/nick`.
            first, _, rest = conversation.lower().partition("/")
            on = network is None or network.lower() == first
            return on and rest.rpartition("/")[2] in folded

        rows = await self._database.fetch_all("SELECT id, anchor, conversation, quotes FROM runs")
        # Lines find questions from the log, and names those that were not logged.
        gone = [
            [row["id"]]
            for row in rows
            if not theirs.isdisjoint([row["anchor"], *json.loads(row["quotes"])])
            or is_theirs(row["conversation"])
        ]
        if gone:
            await self._database.executemany("DELETE FROM runs WHERE id = ?", gone)
        return len(gone)
