"""deploy/litestream.yml, with the real Litestream: a copy up to the second, and the way back."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.db.database import Database
from storage.log import ChatLog
from tests.docs.reference import ROOT
from tests.kit.lines import said
from tests.kit.patience import PATIENCE

LITESTREAM = shutil.which("litestream", path=os.path.dirname(sys.executable))
CONFIG = str(ROOT / "deploy" / "litestream.yml")


async def litestream(*arguments: str, data: Path) -> None:
    assert LITESTREAM
    process = await asyncio.create_subprocess_exec(
        *(LITESTREAM, arguments[0], "-config", CONFIG, *arguments[1:]),
        env={"TERRARIUM_DATA": str(data), "REPLICA": f"file://{data}/replica"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


@pytest.mark.skipif(LITESTREAM is None, reason="there is no litestream beside this Python")
async def test_a_log_comes_back_from_its_replica_with_every_acknowledged_line(
    tmp_path: Path,
) -> None:
    numbers = itertools.count(1)

    async def write(log: ChatLog, lines: int) -> None:
        for number in itertools.islice(numbers, lines):
            await log.append(said(f"line {number}", time=datetime.now(UTC)))

    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as log:
        await write(log, 100)
        await litestream("replicate", "-once", data=tmp_path)
        await write(log, 100)
        await litestream("replicate", "-once", data=tmp_path)
    restored = tmp_path / "restored.db"
    source = str(tmp_path / "irc.db")
    await litestream("restore", "-o", str(restored), source, data=tmp_path)
    with closing(sqlite3.connect(restored)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        texts = [row[0] for row in copy.execute("SELECT text FROM events ORDER BY id")]
    assert texts == [f"line {number}" for number in range(1, 201)]
