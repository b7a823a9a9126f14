"""What `terrarium doctor` says of PostgreSQL, a real server, and of MCP servers."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from harnesses.core.tendril.status import StatusFile, check_mcp_servers
from storage.db.address import PostgresSchema
from storage.db.database import Database
from terrarium.config import Config
from tests.kit.command import terrarium
from tests.kit.postgres import postgres_database, postgres_server


async def database_line(folder: Path, url: str) -> str:
    """Return what the doctor says about the database."""
    done = await terrarium("doctor", cwd=folder, STORAGE_URL=url, MODEL_PATH="absent.gguf")
    lines = {line.split()[1]: line for line in done.out.splitlines()}
    assert "files" not in lines
    return " ".join(lines["database"].split())


async def test_the_database_is_checked_and_the_files_are_left_alone(tmp_path: Path) -> None:
    url, data = postgres_database(), tmp_path / "data"
    data.mkdir()
    (data / "irc.db").write_text("an old file that nobody uses")
    line = await database_line(tmp_path, url)
    assert line.startswith("ok database ")
    assert line.endswith("new: its tables are created at the first start")
    async with Database.open(PostgresSchema(url, "irc")):
        pass
    line = await database_line(tmp_path, url)
    assert line.startswith("ok database ")
    assert "irc (version " in line
    assert [path.name for path in data.glob("*.db*")] == ["irc.db"]
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE terrarium_irc.schema_version SET version = 9999")
    line = await database_line(tmp_path, url)
    assert line.startswith("problem database ")
    assert "written by a newer Terrarium (version 9999" in line


async def test_a_database_that_is_away_or_of_another_role_is_told_with_what_to_do(
    tmp_path: Path,
) -> None:
    with postgres_server(durable=False) as server:
        url = server.create("target")
        assert (await database_line(tmp_path, url)).startswith("ok database ")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE ROLE guest LOGIN")
        guest = url.replace("terrarium@", "guest@")
        line = await database_line(tmp_path, guest)
        assert line.startswith("problem database ")
        assert "ALTER DATABASE ... OWNER TO" in line
        done = await terrarium("keys", "list", cwd=tmp_path, STORAGE_URL=guest)
        assert done.status == 1
        assert "permission denied" in done.err
        assert "ALTER DATABASE ... OWNER TO" in done.err
    line = await database_line(tmp_path, url)
    assert line.startswith("problem database ")
    assert "start PostgreSQL, or correct STORAGE_URL ([storage] url)" in line


SERVERS = {name: {"command": ["server"], "tendrils": ["irc", "web"]} for name in ("time", "git")}


def test_a_server_that_a_tendril_cannot_reach_is_named_with_the_reason(tmp_path: Path) -> None:
    config = Config({"mcp": {"servers": SERVERS}}, None, tmp_path)
    assert [found.text for found in check_mcp_servers(config)] == [
        "no tendril that may use it is running"
    ] * 2
    irc, web = StatusFile(tmp_path, "irc"), StatusFile(tmp_path, "web")
    irc.mcp_troubles = lambda: {"time": "it has ended; its last words: no zone"}
    irc.ready()
    web.ready()
    time, git = check_mcp_servers(config)
    assert (time.what, time.ok) == ("mcp time", False)
    assert time.text == "not connected to irc: it has ended; its last words: no zone"
    assert (git.what, git.ok, git.text) == ("mcp git", True, "used by irc, web")


@pytest.mark.process
async def test_the_doctor_says_how_to_install_the_sdk_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    (tmp_path / "terrarium.toml").write_text(
        '[mcp.servers.time]\ncommand = ["server"]\ntendrils = ["irc"]\n'
    )
    done = await terrarium("doctor", "--data", ".", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert "time, which needs the extra: " in done.out
    assert "pip install 'terrarium-irc[mcp]'" in done.out
