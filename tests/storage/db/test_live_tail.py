"""The live end of a log that another process writes, and the extra that PostgreSQL needs."""

from __future__ import annotations

import asyncio
import sys
import tomllib
from pathlib import Path

import pytest

from storage.chat_log import arrivals
from storage.chat_log.event import PUBLIC
from storage.db.database import Database
from storage.log import ChatLog, Query
from tests.kit.log_writer import LogWriterProcess
from tests.kit.patience import PATIENCE
from tests.kit.stores import Stores

LINES = 200
ROOT = Path(__file__).parents[3]
_WITHOUT = """
import sys
sys.modules["psycopg"] = None  # what is not installed cannot be imported
sys.argv = ["terrarium", *sys.argv[1:]]
from harnesses.cli import main
main()
"""


@pytest.mark.server
async def test_each_line_of_another_process_arrives_once_and_in_order(stores: Stores) -> None:
    async with Database.open(stores("irc")) as database, asyncio.timeout(PATIENCE):
        log, query = ChatLog(database), Query(scope=PUBLIC, limit=1_000)
        changes, position = database.changes(), 0
        await anext(changes)
        writer = await asyncio.to_thread(LogWriterProcess, stores("irc"), 0)
        arrived: list[int] = []
        try:
            while len(arrived) < LINES:
                await anext(changes)
                found = await log.read(arrivals.after, query, position)
                position = found.position
                arrived += [int(event.text) for event in found.events]
        finally:
            await asyncio.to_thread(writer.kill)
            await changes.aclose()
        assert arrived == list(range(len(arrived)))


def test_psycopg_is_no_part_of_the_base_install() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert not [name for name in project["dependencies"] if "psycopg" in name]
    assert [name.split("[")[0] for name in project["optional-dependencies"]["postgres"]] == [
        "psycopg"
    ]


@pytest.mark.parametrize(
    "command", [["logs", "stats"], ["storage", "migrate", "--to", "files"]], ids=" ".join
)
async def test_without_the_extra_it_is_said_what_to_install(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "terrarium.toml").write_text('[storage]\nurl = "postgresql://localhost/none"\n')
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _WITHOUT, *command), cwd=tmp_path, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert "pip install 'terrarium-irc[postgres]'" in err.decode()
    assert b"Traceback" not in err
