"""`terrarium backup` and `restore`, by the real command on files that are being written."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from contextlib import closing, suppress
from pathlib import Path
from sqlite3 import connect

import httpx2
import pytest

from harnesses.core.launcher.tendrils import hold_stopped
from storage.db.process_lock import hold_lock
from tests.harnesses.core.launcher.test_up import answered, up
from tests.kit.command import begun, terrarium
from tests.kit.irc_scene import NOBODY, alice_in
from tests.kit.irc_tendril import ROOM
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port


async def told(words: str, *command: str, cwd: Path, status: int = 1, **environment: str) -> None:
    """The command ends with this status, and says these words to whoever typed it."""
    done = await terrarium(*command, cwd=cwd, **environment)
    assert (done.status, words in done.err) == (status, True), done.err


def said(data: Path) -> set[str]:
    """What people said, by the log in `data`."""
    with closing(connect(data / "irc.db")) as file:
        return {row[0] for row in file.execute("SELECT text FROM events WHERE type = 'PRIVMSG'")}


@pytest.mark.process
async def test_a_backup_has_all_that_was_said_when_it_began_and_only_its_owner_reads_it(
    tmp_path: Path,
) -> None:
    data, copy, again = tmp_path / "data", tmp_path / "copy", tmp_path / "again"
    (data / "personas").mkdir(parents=True)
    (data / "personas" / "pirate.md").write_text("You are a pirate.")
    async with alice_in(data, NOBODY) as (alice, _):
        for number in range(20):
            await alice.say(ROOM, f"line {number}")
        await alice.say(ROOM, ".ping")
        await alice.expect("pong")
        await told("", "backup", "copy", cwd=tmp_path, status=0)
        await told("already exists", "backup", "copy", cwd=tmp_path)
        await told("stop everything", "restore", "copy", cwd=tmp_path)
        dated = tmp_path / "dated"
        for old in ("2020-01-01T000000Z", "2021-01-01T000000Z", "2022-01-01T000000Z", "notes"):
            (dated / f"terrarium-{old}").mkdir(parents=True)
            if "2022" not in old:  # that one was interrupted
                (dated / f"terrarium-{old}" / "backup.json").write_text("{}")
        await told("", "backup", "--keep", "2", "dated", cwd=tmp_path, status=0)
        first, second, notes = sorted(path.name for path in dated.iterdir())
        assert (first, notes) == ("terrarium-2021-01-01T000000Z", "terrarium-notes")
        await told("", "restore", f"dated/{second}", "--data", "third", cwd=tmp_path, status=0)
    assert {path.name for path in copy.iterdir()} >= {"irc.db", "backup.json", "personas"}
    assert not [path for path in copy.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    await told("", "restore", "copy", "--data", "again", cwd=tmp_path, status=0)
    assert said(again) >= {f"line {number}" for number in range(20)}
    assert (again / "personas" / "pirate.md").read_text() == "You are a pirate."
    await told("--force", "restore", "copy", "--data", "again", cwd=tmp_path)
    await told("", "restore", "copy", "--force", "--data", "again", cwd=tmp_path, status=0)


@pytest.mark.process
async def test_a_damaged_backup_restores_nothing(tmp_path: Path) -> None:
    data, copy, again = tmp_path / "data", tmp_path / "copy", tmp_path / "again"
    async with alice_in(data, NOBODY) as (alice, _):
        await alice.say(ROOM, ".ping")
        await alice.expect("pong")
    await terrarium("backup", "copy", cwd=tmp_path)
    whole = (copy / "irc.db").read_bytes()
    (copy / "irc.db").write_bytes(whole[:-1] + b"?")
    await told("damaged", "restore", "copy", "--data", "again", cwd=tmp_path)
    (copy / "irc.db").write_bytes(whole)
    manifest = json.loads((copy / "backup.json").read_text())
    manifest["files"]["../evil"] = "0"
    (copy / "backup.json").write_text(json.dumps(manifest))
    await told("outside", "restore", "copy", "--data", "again", cwd=tmp_path)
    assert not list(again.rglob("*.db"))


def kept(path: Path, text: str) -> None:
    """Have a database with one row, in WAL mode, whose rows are in the WAL as after a kill."""
    path.parent.mkdir(exist_ok=True)
    with closing(connect(path)) as live:
        live.execute("PRAGMA journal_mode = WAL")
        live.execute("CREATE TABLE kept (text)")
        live.execute("INSERT INTO kept VALUES (?)", [text])
        live.commit()
        killed = {each: each.read_bytes() for each in path.parent.glob(f"{path.name}*")}
    for each, content in killed.items():
        each.write_bytes(content)


def row(path: Path) -> str:
    with closing(connect(path)) as file:
        return str(file.execute("SELECT text FROM kept").fetchone()[0])


async def test_the_log_outside_the_data_folder_is_the_one_that_is_backed_up(tmp_path: Path) -> None:
    kept(tmp_path / "elsewhere" / "log.db", "the log")
    kept(tmp_path / "data" / "irc.db", "an older one")
    path = {"DB_PATH": str(tmp_path / "elsewhere" / "log.db")}
    await told("data/irc.db is not the log", "backup", "copy", cwd=tmp_path, status=1, **path)
    (tmp_path / "data" / "irc.db").unlink()
    made = await terrarium("backup", "copy", cwd=tmp_path, **path)
    assert (made.status, row(tmp_path / "copy" / "irc.db")) == (0, "the log")
    kept(tmp_path / "data" / "irc.db", "the log")
    path = {"DB_PATH": str(tmp_path / "data" / "irc.db")}  # `--data data` names it otherwise
    same = await terrarium("backup", "again", cwd=tmp_path, **path)
    assert (same.status, row(tmp_path / "again" / "irc.db")) == (0, "the log")


@pytest.mark.parametrize("command", ["chat", "server", "logs import weechat.log"])
async def test_nothing_that_writes_starts_during_a_restore(tmp_path: Path, command: str) -> None:
    (tmp_path / "weechat.log").write_text("")
    with hold_stopped(tmp_path / "data", "terrarium restore"):
        words, settings = "`terrarium restore` already runs", {"MODEL_UPSTREAM": NOBODY}
        await told(words, *command.split(), cwd=tmp_path, status=78, **settings)
    assert not list((tmp_path / "data").glob("*.db"))


async def test_nothing_is_restored_beside_a_tendril_or_an_agent_server(tmp_path: Path) -> None:
    kept(tmp_path / "data" / "web.db", "new")
    await terrarium("backup", "copy", cwd=tmp_path)
    restore = ("restore", "copy", "--force")
    with hold_lock(tmp_path / "data", "web", "terrarium run web"):
        await told("`terrarium run web` (process", *restore, cwd=tmp_path)
    port = free_port()
    # Its model cannot be reached; it listens all the same.
    settings = {"SERVER_PORT": str(port), "MODEL_UPSTREAM": f"http://127.0.0.1:{free_port()}"}
    async with begun("server", cwd=tmp_path, **settings) as server:
        async with asyncio.timeout(PATIENCE), httpx2.AsyncClient() as http:
            while True:
                with suppress(httpx2.ConnectError):
                    await http.get(f"http://127.0.0.1:{port}/health")
                    break
                await asyncio.sleep(0.05)
        await told("`terrarium server` (process", *restore, cwd=tmp_path)
        server.send_signal(signal.SIGTERM)
        await server.communicate()
    await told("", *restore, cwd=tmp_path, status=0)


async def test_a_restore_leaves_the_old_database_whole_until_the_new_one_is_there(
    tmp_path: Path,
) -> None:
    kept(tmp_path / "data" / "web.db", "new")
    await terrarium("backup", "copy", cwd=tmp_path)
    for path in (tmp_path / "data").glob("web.db*"):
        path.unlink()
    kept(tmp_path / "data" / "web.db", "old")
    (tmp_path / "old.db").hardlink_to(tmp_path / "data" / "web.db")
    await told("", "restore", "copy", "--force", cwd=tmp_path, status=0)
    assert (row(tmp_path / "data" / "web.db"), row(tmp_path / "old.db")) == ("new", "old")


@pytest.mark.slow
async def test_what_was_restored_goes_on_where_the_backup_was_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    async with ScriptedOpenAI() as script:
        async with up(data, script) as running:
            script.say("Noted.")
            await answered(running.irc_port, "ada", "Noted.")
            await told("", "backup", "copy", cwd=tmp_path, status=0)
            running.process.send_signal(signal.SIGINT)
            assert await running.ended() == 0
        await asyncio.to_thread(data.rename, tmp_path / "lost")
        await told("", "restore", "copy", cwd=tmp_path, status=0)
        assert ".terrarium tell me a story" in said(data)
        async with up(data, script) as running:
            script.say("And again.")
            await answered(running.irc_port, "ada", "And again.")
            running.process.send_signal(signal.SIGINT)
            assert await running.ended() == 0
