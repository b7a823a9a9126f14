"""`terrarium doctor` where everything is kept in PostgreSQL: a real server, a real command."""

from __future__ import annotations

from pathlib import Path

import psycopg

from storage.db.address import PostgresSchema
from storage.db.database import Database
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
    assert line.endswith("new, tables are made at the first start")
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


async def test_a_database_that_is_away_is_told(tmp_path: Path) -> None:
    with postgres_server(durable=False) as server:
        url = server.create("target")
        assert (await database_line(tmp_path, url)).startswith("ok database ")
    line = await database_line(tmp_path, url)
    assert line.startswith("problem database ")
    assert "start PostgreSQL, or correct STORAGE_URL ([storage] url)" in line


async def test_a_role_that_does_not_own_the_database_is_told_what_to_do(tmp_path: Path) -> None:
    with postgres_server(durable=False) as server:
        url = server.create("target")
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
