"""Stores of the first schema that this version reads, of an older one, and of one to come.

`tests/data/schema-31.*` were written by `fill(database, 20)` of tests/storage/test_transfer.py when
the schema had just become 31.
"""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from storage.chat_log.event import EVERYTHING, PUBLIC, Identity
from storage.chat_log.opt_outs import OptOuts
from storage.connection import Dialect
from storage.db.address import Address, PostgresSchema
from storage.db.database import Database
from storage.db.errors import OlderSchema
from storage.db.migration import FOLDER, migrate
from storage.db.postgres.connection import PostgresConnection, adapt
from storage.db.postgres.migration import migrate as migrate_schema
from storage.db.sqlite import SqliteConnection
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations
from storage.memory.memories import Memories, MemoryKind
from storage.queues.jobs import Jobs
from storage.queues.outbox import Outbox
from storage.queues.reminders import Reminders
from storage.search.models import SearchQuery
from storage.transfer import copy_store
from tests.kit.postgres import PostgresStores, binaries, postgres_database
from tests.kit.stores import SqliteStores
from tests.storage.test_transfer import said

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    """A file of schema 31."""
    path = tmp_path / "irc.db"
    path.write_bytes(gzip.decompress((DATA / "schema-31.db.gz").read_bytes()))
    return path


@pytest.fixture
def old_schema() -> PostgresSchema:
    """A schema of schema 31 in PostgreSQL."""
    url = postgres_database()
    dump = gzip.decompress((DATA / "schema-31.sql.gz").read_bytes())
    restore = [str(binaries() / "psql"), "--quiet", f"--dbname={url}"]
    subprocess.run(restore, input=dump, check=True, stdout=subprocess.DEVNULL)
    return PostgresSchema(url, "irc")


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest) -> Address:
    """A store of schema 31 in each kind of database."""
    name = "old_file" if request.param == "sqlite" else "old_schema"
    address: Address = request.getfixturevalue(name)
    return address


async def test_a_store_of_schema_31_opens_with_all_that_is_in_it_and_goes_on(old: Address) -> None:
    async with Database.open(old) as database, ChatLog.open(database) as log:
        lines = await log.find(Query(scope=EVERYTHING, limit=50))
        assert len(lines) == 23
        assert {line.nick for line in lines} == {"bob", "Ådå", "Terra", "eve", "zoe"}
        found = await log.search(SearchQuery(text="frog 7", within=Query(scope=PUBLIC)))
        assert [hit.event.text for hit in found.hits] == ["frog 7 \x02croaks\x02 "]
        assert (await log.stats(Query(scope=PUBLIC))).lines == 22
        hides = (await OptOuts(database).load()).hides_person
        assert hides("irc", Identity("carol", "~c", "c.example", "carol"))
        (turn,) = await Conversations(database).turns("irc/#frogs/bob")
        assert turn.messages[0]["content"] == "¿frogs?"
        (note,) = await Memories(database).latest("irc/#frogs", MemoryKind.NOTE)
        assert note.text == "bob likes frogs"
        (job,) = await Jobs(database).all()
        (reminder,) = await Reminders(database).all()
        assert (job.payload, reminder.text) == ({"n": 1}, "the pond")
        assert [each.text for each in await Outbox(database).list_unsent()] == ["A frog."]
        assert await log.append(said(1_000)) > lines[-1].id
        assert await Jobs(database).add("work", {}) == job.id + 1


async def test_a_new_store_has_the_tables_of_an_old_one(
    old_file: Path, old_schema: PostgresSchema, tmp_path: Path
) -> None:
    file, schema = tmp_path / "new.db", PostgresSchema(postgres_database(), "irc")
    addresses: list[Address] = [file, schema]
    for address in addresses:
        async with Database.open(address) as database:
            await ChatLog(database).add([said(1)])  # which makes the tables of the index
    with closing(sqlite3.connect(old_file)) as old, closing(sqlite3.connect(file)) as new:
        assert _sqlite_tables(new) == _sqlite_tables(old)
    assert _dumped(schema) == _dumped(old_schema)


def _sqlite_tables(file: sqlite3.Connection) -> object:
    """The columns of each table, and the other entries of the schema."""
    rows = file.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    return [
        file.execute(
            "SELECT name, type, dflt_value, pk FROM pragma_table_xinfo(?)", [name]
        ).fetchall()
        if kind == "table"
        else sql
        for kind, name, sql in rows
    ]


def _dumped(schema: PostgresSchema) -> list[str]:
    dump = [str(binaries() / "pg_dump"), "--schema-only", "--no-owner", schema.url]
    done = subprocess.run(dump, check=True, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "restrict" not in line]


async def test_a_file_of_schema_31_moves_to_postgresql(old_file: Path, tmp_path: Path) -> None:
    async with (
        Database.open(old_file) as here,
        Database.open(PostgresStores(tmp_path)("irc")) as there,
    ):
        assert await copy_store(here, there, lambda line: None) > 23


@pytest.mark.parametrize("stores", [SqliteStores, PostgresStores])
async def test_an_older_store_is_told_which_version_to_pass_through_and_left_as_it_is(
    stores: type[SqliteStores] | type[PostgresStores], tmp_path: Path
) -> None:
    address: Address = stores(tmp_path)("irc")
    async with Database.open(address):
        pass
    if isinstance(address, Path):
        with closing(sqlite3.connect(address)) as file:
            file.execute("PRAGMA user_version = 17")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = address.read_bytes()
    else:
        with psycopg.connect(address.url) as connection:
            connection.execute("UPDATE terrarium_irc.schema_version SET version = 17")
    with pytest.raises(OlderSchema, match=r"irc.*\(version 17\).* 0\.1\.0 .* nothing was changed"):
        async with Database.open(address):
            pass
    if isinstance(address, Path):
        assert address.read_bytes() == before


@pytest.fixture
def newer_folder(tmp_path: Path) -> Path:
    """The scripts with one more, of which each kind of database has a part of its own."""
    folder = tmp_path / "migrations"
    shutil.copytree(str(FOLDER), folder)
    (folder / "0032_ponds.sql").write_text(
        "CREATE TABLE ponds (id INTEGER PRIMARY KEY, name TEXT NOT NULL COLLATE NOCASE) STRICT;"
    )
    for dialect in Dialect:
        script = f"INSERT INTO ponds (name) VALUES ('{dialect}');"
        (folder / dialect / "0032_ponds.sql").write_text(script)
    return folder


def _connected(path: Path) -> SqliteConnection:
    return sqlite3.connect(path, isolation_level=None, factory=SqliteConnection)


def test_a_later_migration_runs_once_in_both_databases(
    old_file: Path, old_schema: PostgresSchema, newer_folder: Path
) -> None:
    query = "SELECT name FROM ponds WHERE name = 'SQLITE' OR name = 'POSTGRES'"
    with closing(_connected(old_file)) as file:
        for _ in range(2):
            migrate(file, old_file, newer_folder)
        assert file.execute(query).fetchall() == [("sqlite",)]
        assert file.execute("PRAGMA user_version").fetchone() == (32,)
    with psycopg.connect(old_schema.url, autocommit=True) as raw:
        adapt(raw)
        raw.execute("SET search_path = terrarium_irc, public")
        for _ in range(2):
            migrate_schema(PostgresConnection(raw), old_schema, newer_folder)
        assert raw.execute(query.encode()).fetchall() == [("postgres",)]
        assert raw.execute("SELECT version FROM schema_version").fetchall() == [(32,)]


def test_a_migration_that_is_interrupted_leaves_the_file_as_it_was(
    old_file: Path, newer_folder: Path
) -> None:
    (newer_folder / "0033_lakes.sql").write_text("CREATE TABLE lakes (id);\nSELECT broken;")
    with closing(_connected(old_file)) as file:
        tables = file.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="broken"):
            migrate(file, old_file, newer_folder)
    with closing(sqlite3.connect(old_file)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (31,)
        assert file.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall() == tables
