"""Stores of the schemas that this version reads, of an older one, and of one to come.

`tests/data/schema-31.*` were written by `fill(database, 20)` of tests/storage/test_transfer.py when
the schema had just become 31, `tests/data/schema-29.*` so by the last version of schema 29. Those
have a run with two steps, a paste and an erasure that is not finished, too.
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

from storage.chat_log import statistics
from storage.chat_log.event import EVERYTHING, PUBLIC, Identity, Place
from storage.chat_log.opt_outs import OptOuts
from storage.connection import Dialect
from storage.db.address import Address, PostgresSchema
from storage.db.database import Database, SqliteConnection
from storage.db.errors import OlderSchema
from storage.db.migration import FOLDER, migrate
from storage.db.postgres.connection import PostgresConnection, adapt
from storage.db.postgres.schemas import migrate as migrate_schema
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations
from storage.memory.memories import Memories, MemoryKind
from storage.privacy.erasure import finish_erasures
from storage.privacy.pending_erasures import PendingErasures
from storage.queues.jobs import Jobs
from storage.queues.outbox import Outbox
from storage.queues.pastes import Pastes
from storage.queues.reminders import Reminders
from storage.runs.reader import read_run
from storage.runs.runs import Step
from storage.search.models import SearchQuery
from storage.transfer import copy_store
from tests.kit.postgres import PostgresStores, binaries, postgres_database
from tests.kit.stores import SqliteStores
from tests.storage.test_transfer import said

DATA = Path(__file__).parents[2] / "data"


def _old_file(folder: Path, version: int) -> Path:
    path = folder / "irc.db"
    name = f"schema-{29 if version < 31 else 31}.db.gz"
    path.write_bytes(gzip.decompress((DATA / name).read_bytes()))
    if version == 30:
        _migrate_file(path, _folder_up_to(30, folder))
    return path


def _old_schema(folder: Path, version: int) -> PostgresSchema:
    address = PostgresSchema(postgres_database(), "irc")
    name = f"schema-{29 if version < 31 else 31}.sql.gz"
    dump = gzip.decompress((DATA / name).read_bytes())
    restore = [str(binaries() / "psql"), "--quiet", f"--dbname={address.url}"]
    subprocess.run(restore, input=dump, check=True, stdout=subprocess.DEVNULL)
    if version == 30:
        _migrate_schema(address, _folder_up_to(30, folder))
    return address


def _folder_up_to(version: int, parent: Path) -> Path:
    """The scripts that led to an earlier schema."""
    folder = parent / f"migrations-{version}"
    shutil.copytree(str(FOLDER), folder, dirs_exist_ok=True)
    for script in folder.rglob("*.sql"):
        if int(script.name[:4]) > version:
            script.unlink()
    return folder


def _migrate_file(path: Path, folder: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None, factory=SqliteConnection)
    with closing(connection) as file:
        migrate(file, path, folder)


def _migrate_schema(address: PostgresSchema, folder: Path) -> None:
    with psycopg.connect(address.url, autocommit=True) as raw:
        adapt(raw)
        raw.execute("SET search_path = terrarium_irc, public")
        migrate_schema(PostgresConnection(raw), address, folder)


@pytest.fixture(params=[29, 30, 31])
def version(request: pytest.FixtureRequest) -> int:
    """The schema version of old stores."""
    number: int = request.param
    return number


@pytest.fixture
def old_file(tmp_path: Path, version: int) -> Path:
    """A file of an earlier schema."""
    return _old_file(tmp_path, version)


@pytest.fixture
def old_schema(tmp_path: Path, version: int) -> PostgresSchema:
    """An earlier schema in PostgreSQL."""
    return _old_schema(tmp_path, version)


@pytest.fixture(params=[_old_file, _old_schema])
def old(request: pytest.FixtureRequest, tmp_path: Path, version: int) -> Address:
    """A store of an earlier schema in each kind of database."""
    address: Address = request.param(tmp_path, version)
    return address


async def test_a_store_of_an_earlier_schema_opens_with_all_that_is_in_it_and_goes_on(
    old: Address,
) -> None:
    async with Database.open(old) as database, ChatLog.open(database) as log:
        lines = await log.find(Query(scope=EVERYTHING, limit=50))
        assert len(lines) == 23
        assert {line.nick for line in lines} == {"bob", "Ådå", "Terra", "eve", "zoe"}
        found = await log.search(SearchQuery(text="frog 7", within=Query(scope=PUBLIC)))
        assert [hit.event.text for hit in found.hits] == ["frog 7 \x02croaks\x02 "]
        assert (await log.read(statistics.stats, Query(scope=PUBLIC))).lines == 22
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


@pytest.mark.parametrize("version", [29, 30], indirect=True)
async def test_what_later_migrations_change_is_shown_before_them_and_kept_by_them(
    old: Address, tmp_path: Path
) -> None:
    place = tmp_path if isinstance(old, Path) else old
    before = await read_run(place, "irc-1")
    assert before
    assert (before.question_event_id, before.model_profile, before.cut) == (5, "", False)
    model = Step("model", "terra", True, 900, "allow", 10, 4, 2)
    assert before.steps == (model, Step("tool", "look", True, 7, "allow"))
    async with Database.open(old) as database, ChatLog.open(database) as log:
        assert await read_run(place, "irc-1") == before
        paste = await Pastes(database).latest(Place("irc", "#frogs"), "")
        assert paste
        assert (paste.text, paste.rest) == ("A long answer.", ("answer.",))
        await finish_erasures(log, tmp_path)
        nicks = {line.nick for line in await log.find(Query(scope=EVERYTHING, limit=50))}
        assert nicks == {"bob", "Ådå", "Terra", "eve"}
        assert await PendingErasures(database).list_all() == []


FACT = """
INSERT INTO memories (layer, room, subject, key, text, source, manual, confidence, conversation,
    first_turn, last_turn, begun, time)
VALUES ('fact', '{room}', '{nick}', '{key}', '', '{nick}', 1, 1.0, '', 0, 0, 0, {time}000)"""
CHANNEL = "INSERT INTO channels (network, name, private) VALUES ('irc', '{name}', {private})"
EVENT = """
INSERT INTO events (id, channel_id, type, time, nick, "user", host, account, target, text, own)
SELECT {id}, id, '{type}', {id}000, '{nick}', '~b', 'host.example', {account}, '', '', {own}
FROM channels WHERE network = 'irc' AND name = '{room}'"""
LAST = 1_777_636_819_000  # when bob has said his last line, in milliseconds
DAY = 86_400_000
EVE, BOB = "eve!e@host.example", "bob!~b@host.example"
CLOAKED = "guest!g@gateway/web/irc"
OWNERS = (  # of each fact the room, the nick, the time after LAST, and whose it is then
    ("#frogs", "bob", 1_000, BOB),
    ("#frogs", "bob", DAY, "bob"),  # he may have been anybody
    ("#frogs", "zoe", 1_000, "zoe"),  # who has said nothing there
    ("#frogs", "terra", 1_000, "terra"),
    ("#frogs", "carol", 4_000, "carol"),  # who has opted out
    ("#frogs", "{ada}", 4_000, "~{ada}"),
    ("#frogs", "max", 4_000, "max!~b@host.example"),  # the server's clock is ahead
    ("#hey!", "bob", 4_000, BOB),
    ("#hey!", "zoe", 4_000, "zoe"),
    (EVE, "eve", DAY, EVE),
    (CLOAKED, "guest", DAY, CLOAKED),
)


@pytest.mark.parametrize("version", [31], indirect=True)
@pytest.mark.parametrize("is_irc", [True, False])
async def test_facts_that_belonged_to_a_nick_belong_to_who_had_it_where_the_log_tells(
    old: Address, is_irc: bool
) -> None:
    script = [
        CHANNEL.format(name=name, private=private)
        for name, private in (("#hey!", 0), (EVE, 1), (CLOAKED, 1))
    ]
    events = [
        ("#frogs", "carol", "PRIVMSG", 3_100, "NULL", 0),
        ("#frogs", "[Ada]", "PRIVMSG", 3_101, "'[Ada]'", 0),
        ("#frogs", "max", "PRIVMSG", 5_100, "NULL", 0),
        ("#hey!", "bob", "PRIVMSG", 3_102, "NULL", 0),
    ]
    if is_irc:  # else a nick is still enough
        events.append(("#frogs", "Terra", "JOIN", -DAY, "'terra'", 1))
    script += [
        EVENT.format(room=room, nick=nick, type=type, id=LAST + time, account=account, own=own)
        for room, nick, type, time, account, own in events
    ]
    script += [
        FACT.format(room=f"irc/{room.replace('/', '%2F')}", nick=nick, key=number, time=LAST + time)
        for number, (room, nick, time, _) in enumerate(OWNERS)
    ]
    if isinstance(old, Path):
        with closing(sqlite3.connect(old)) as file:
            file.executescript(";".join(script))
    else:
        with psycopg.connect(old.url) as raw:
            raw.execute("SET search_path = terrarium_irc, public")
            raw.execute(";".join(script).encode())
    async with Database.open(old) as database:
        rows = await database.fetch_all(
            "SELECT subject, source, key FROM memories WHERE layer = 'fact' ORDER BY id"
        )
    assert [tuple(row) for row in rows] == [
        (owner, owner, str(number))
        for number, owner in enumerate(owner if is_irc else nick for _, nick, _, owner in OWNERS)
    ]


async def test_a_new_store_has_the_tables_of_an_old_one(
    old_file: Path, old_schema: PostgresSchema, tmp_path: Path
) -> None:
    file, schema = tmp_path / "new.db", PostgresSchema(postgres_database(), "irc")
    addresses: list[Address] = [file, schema, old_file, old_schema]
    for address in addresses:
        async with Database.open(address) as database:
            await ChatLog(database).add([said(1)])  # which makes the tables of the index
    with closing(sqlite3.connect(old_file)) as old, closing(sqlite3.connect(file)) as new:
        assert _sqlite_tables(new) == _sqlite_tables(old)
    assert _dumped(schema, "--schema-only") == _dumped(old_schema, "--schema-only")


def _sqlite_tables(file: sqlite3.Connection) -> object:
    """The columns of each table, and the other entries of the schema."""
    rows = file.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    return [
        file.execute(
            'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?)', [name]
        ).fetchall()
        if kind == "table"
        else sql
        for kind, name, sql in rows
    ]


def _dumped(schema: PostgresSchema, *options: str) -> list[str]:
    dump = [str(binaries() / "pg_dump"), "--no-owner", *options, schema.url]
    done = subprocess.run(dump, check=True, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "restrict" not in line]


async def test_a_file_of_an_earlier_schema_moves_to_postgresql(
    old_file: Path, tmp_path: Path
) -> None:
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
            file.execute("PRAGMA user_version = 28")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        with psycopg.connect(address.url) as connection:
            connection.execute("UPDATE terrarium_irc.schema_version SET version = 28")

    def content() -> object:
        return address.read_bytes() if isinstance(address, Path) else _dumped(address)

    before = content()
    with pytest.raises(OlderSchema, match=r"irc.*\(version 28\).* 0\.1\.0 .* nothing was changed"):
        async with Database.open(address):
            pass
    assert content() == before


LATER = 1 + max(int(each.name[:4]) for each in FOLDER.iterdir() if each.name.endswith(".sql"))


@pytest.fixture
def newer_folder(tmp_path: Path) -> Path:
    """The scripts with one more, of which each kind of database has a part of its own."""
    folder = tmp_path / "migrations"
    shutil.copytree(str(FOLDER), folder)
    (folder / f"{LATER:04}_ponds.sql").write_text(
        "CREATE TABLE ponds (id INTEGER PRIMARY KEY, name TEXT NOT NULL COLLATE NOCASE) STRICT;"
    )
    for dialect in Dialect:
        script = f"INSERT INTO ponds (name) VALUES ('{dialect}');"
        (folder / dialect / f"{LATER:04}_ponds.sql").write_text(script)
    return folder


def test_a_later_migration_runs_once_in_both_databases(
    old_file: Path, old_schema: PostgresSchema, newer_folder: Path
) -> None:
    query = "SELECT name FROM ponds WHERE name = 'SQLITE' OR name = 'POSTGRES'"
    new_file = newer_folder / "new.db"
    for _ in range(2):
        for path in (old_file, new_file):
            _migrate_file(path, newer_folder)
        _migrate_schema(old_schema, newer_folder)
    for path in (old_file, new_file):
        with closing(sqlite3.connect(path)) as file:
            assert file.execute(query).fetchall() == [("sqlite",)]
            assert file.execute("PRAGMA user_version").fetchone() == (LATER,)
    with psycopg.connect(old_schema.url) as raw:
        raw.execute("SET search_path = terrarium_irc, public")
        assert raw.execute(query.encode()).fetchall() == [("postgres",)]
        assert raw.execute("SELECT version FROM schema_version").fetchall() == [(LATER,)]


def test_a_migration_that_is_interrupted_leaves_the_file_as_it_was(
    old_file: Path, version: int, newer_folder: Path
) -> None:
    (newer_folder / f"{LATER + 1:04}_lakes.sql").write_text(
        "CREATE TABLE lakes (id);\nSELECT broken;"
    )
    before = old_file.read_bytes()
    with pytest.raises(sqlite3.OperationalError, match="broken"):
        _migrate_file(old_file, newer_folder)
    with closing(sqlite3.connect(old_file)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (version,)
    assert old_file.read_bytes() == before
