"""A writer, or a database, that is killed at any moment has stored, once, all that was
acknowledged.

`KILLS=200` kills the writer as often; by itself it is enough to meet a mistake that is often made.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from storage.db.address import PostgresSchema
from tests.kit.log_writer import LogWriterProcess, kill_in_turn
from tests.kit.postgres import postgres_server

ROUNDS = int(os.environ.get("KILLS", "20"))
ON_POSTGRES = 6  # rounds; `make bench-postgres` makes 200
LONGEST = 0.02  # seconds from the first line that was acknowledged to the kill
PER_ROUND = 1_000_000


@pytest.mark.server
@pytest.mark.timeout(600)
def test_every_acknowledged_line_is_there_once_after_each_of_many_kills(tmp_path: Path) -> None:
    path = tmp_path / "irc.db"
    told: set[int] = set()
    for number in range(ROUNDS):
        writer = LogWriterProcess(path, number * PER_ROUND)
        told.add(writer.one())
        time.sleep(random.uniform(0, LONGEST))  # the moment at which it is killed
        told |= writer.kill()
        with closing(sqlite3.connect(path)) as file:
            stored = [int(row[0]) for row in file.execute("SELECT text FROM events ORDER BY id")]
            assert len(stored) == len(set(stored))
            assert told <= set(stored)
            assert stored == sorted(stored)
            assert file.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            assert file.execute("SELECT sum(lines) FROM partitions").fetchone()[0] == len(stored)
            assert file.execute("SELECT lines FROM totals").fetchone()[0] == len(stored)
    assert len(told) > ROUNDS


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(600)
def test_every_acknowledged_line_is_there_once_when_postgresql_and_writer_are_killed() -> None:
    with postgres_server() as server:
        address = PostgresSchema(server.create("crash"), "irc")
        told: set[int] = set()
        for number in range(ON_POSTGRES // 2):
            told |= kill_in_turn(server, address, number * PER_ROUND, LONGEST)
            with psycopg.connect(address.url) as connection:
                connection.execute("SET search_path TO terrarium_irc")
                rows = connection.execute("SELECT text FROM events ORDER BY id")
                stored = [int(row[0]) for row in rows]
                assert len(stored) == len(set(stored))
                assert told <= set(stored)
                assert stored == sorted(stored)
                row = connection.execute("SELECT lines FROM totals").fetchone()
                assert row == (len(stored),)
        assert len(told) > ON_POSTGRES
