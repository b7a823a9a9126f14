"""What the documentation promises about the files that Terrarium keeps."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from harnesses.core.tendril.status import ProcessState, read_report
from storage.db.database import Database
from tests.kit.command import environment_without_settings, terrarium
from tests.kit.ircd import embedded_ircd
from tests.kit.patience import PATIENCE

NOBODY = "http://127.0.0.1:9"


@asynccontextmanager
async def bot(data: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """`terrarium run irc`, once it has joined, with a umask that would let others read."""
    settings = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(port), "AGENT_API_URL": NOBODY}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harnesses.cli", "run", "irc", "--data", str(data)),
        env=environment_without_settings() | settings,
        umask=0o022,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not (said := read_report(data, "irc")) or said.state is not ProcessState.READY:
                assert process.returncode is None
                await asyncio.sleep(0.02)  # another process announces nothing
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


@pytest.mark.process
async def test_all_that_is_kept_can_be_read_by_its_user_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with embedded_ircd() as ircd, bot(data, ircd.port):
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (data, *data.rglob("*"))}
    assert {"irc.db", "irc.db-wal", "outbox.db"} <= {path.name for path in modes}
    assert [path for path, mode in modes.items() if mode & 0o077] == []


@pytest.mark.process
async def test_a_second_process_of_a_tendril_on_a_folder_ends_with_one_line(
    tmp_path: Path,
) -> None:
    async with embedded_ircd() as ircd, bot(tmp_path, ircd.port) as first:
        second = await terrarium("run", "irc", "--data", ".", cwd=tmp_path, IRC_SERVER="127.0.0.1")
        assert second.status == 78
        assert second.err.splitlines() == [
            f"terrarium: `terrarium run irc` already runs on . (process {first.pid}); stop that "
            "one, or choose another folder with --data DIR"
        ]
        assert first.returncode is None


@pytest.mark.process
@pytest.mark.parametrize("kind", ["newer", "letter", "torn"])
async def test_a_file_that_cannot_be_used_ends_a_tendril_for_good_and_stays_as_it_is(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "irc.db"
    if kind == "letter":
        path.write_text("this is a letter, and no database at all\n" * 40)
    else:
        async with Database.open(path):
            pass
        with closing(sqlite3.connect(path)) as file:
            rows = [("r", f"words {n} " * 50, n) for n in range(500)]
            file.executemany(
                "INSERT INTO outbox (network, channel, text, key, time) VALUES ('n', ?, ?, ?, 1)",
                rows,
            )
            file.commit()
            if kind == "newer":
                file.execute("PRAGMA user_version = 9999")
    if kind == "torn":
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = path.stat().st_size
        with path.open("r+b") as torn:
            torn.seek(size // 8192 * 4096)
            torn.write(os.urandom(8192))
    before = path.read_bytes()
    done = await terrarium("run", "irc", "--data", ".", cwd=tmp_path, IRC_SERVER="127.0.0.1")
    assert done.status == 78
    told = [line for line in done.err.splitlines() if line.startswith("terrarium: ")]
    assert len(told) == 1
    assert "irc.db" in told[0]
    assert path.read_bytes() == before


async def test_doctor_finds_what_others_can_read_and_what_is_damaged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    config = tmp_path / "terrarium.toml"
    config.write_text(
        '[irc]\nserver = "irc.example.org"\nchannels = ["#open", "+closed hunter2"]\n'
    )
    config.chmod(0o644)
    (data / "web.db").write_text("this is a letter, and no database at all\n" * 40)
    (data / "web.db").chmod(0o600)
    done = await terrarium("doctor", cwd=tmp_path)
    told = {line.split()[1]: line for line in done.out.splitlines()}
    assert told["privacy"].startswith("problem")
    assert "chmod go= data terrarium.toml" in told["privacy"]
    assert told["files"].startswith("problem")
    assert "data/web.db is damaged" in told["files"]
    data.chmod(0o700)
    config.chmod(0o600)
    (data / "web.db").unlink()
    done = await terrarium("doctor", cwd=tmp_path)
    told = {line.split()[1]: line for line in done.out.splitlines()}
    assert told["privacy"].startswith("ok")
    assert told["files"].startswith("ok")
