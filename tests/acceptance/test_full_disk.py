"""A disk that is full, or a file that is damaged, while the bot runs."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx2
import pytest

from harnesses.core.tendril.status import ProcessState, examine_process, read_report
from harnesses.irc.event_handler import NOT_LOGGED
from harnesses.irc.tendril import IrcTendril
from tests.kit.agent_server import agent_server
from tests.kit.forgetting import small_disk
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import until
from tests.kit.web_site import event, web_site

ADMIN = {"irc": {"admins": "*!*@*"}}


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, of 6 MB."""
    folder = tmp_path / "data"
    folder.mkdir()
    with small_disk(folder, 6 << 20) as mounted:
        if not mounted:
            pytest.skip("only root can mount a small disk")
        yield folder


def fill(folder: Path) -> Path:
    """Take all the room that a disk has left; return the file that has it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    assert shutil.disk_usage(folder).free == 0
    return filler


async def said_by(client: IrcClient, words: str, pattern: str) -> str:
    await client.say(ROOM, words)
    return (await client.expect(rf":Terra!\S+ (?:PRIVMSG|NOTICE) \S+ :(.*{pattern}.*)$"))[1]


async def in_state(tendril: IrcTendril, state: ProcessState, detail: str = "") -> None:
    """Wait until the status file says `state`, with `detail` in it."""

    def is_told() -> bool:
        said = read_report(tendril.config.data, "irc")
        return said is not None and said.state is state and detail in said.detail

    await until(is_told)


@asynccontextmanager
async def alice_on(
    data: Path, script: ScriptedOpenAI
) -> AsyncIterator[tuple[IrcClient, IrcTendril]]:
    async with embedded_ircd() as ircd:
        config = irc_config(data, ircd.port, script.url, **ADMIN)
        async with irc_tendril(config) as tendril, irc_client(ircd.port, "alice") as alice:
            await alice.join(ROOM)
            await in_state(tendril, ProcessState.READY)
            yield alice, tendril


async def test_on_a_full_disk_the_bot_answers_says_so_and_loses_no_line(data: Path) -> None:
    async with ScriptedOpenAI() as script, alice_on(data, script) as (alice, tendril):
        await alice.say(ROOM, "before")
        await tendril.services.log.flush()
        filler = fill(data)
        long = "frog " * 60
        for number in range(60):
            await alice.say(ROOM, f"{number} {long}")
        full = "the disk: the database cannot be written"
        await in_state(tendril, ProcessState.WAITING, full)
        assert not examine_process(data, "irc").ok
        assert "lines wait in memory" in await said_by(alice, ".status", "queue")
        await alice.expect(NOT_LOGGED[:40])
        await said_by(alice, ".stats", "lines? by")
        script.say("Forty-two it is.")
        await said_by(alice, "Terra: how are you?", "Forty-two")
        await said_by(alice, ".nolog", "I cannot use my files")
        filler.unlink()
        await tendril.services.log.flush()
        await in_state(tendril, ProcessState.READY)
        config = tendril.config
    lines = [text for _, nick, text in await logged(config) if nick == "alice"]
    assert [line.split()[0] for line in lines if long.strip() in line] == [
        str(number) for number in range(60)
    ]
    with closing(sqlite3.connect(data / "irc.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_full_disk_is_told_by_health_metrics_and_doctor_of_the_pages(data: Path) -> None:
    sample = 'terrarium_tendril_disk_trouble{key="anonymous",tendril="web"}'
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url}) as url,
        httpx2.AsyncClient(base_url=url) as http,
        web_site(data, events=[event("before")], agent_url=url) as site,
    ):

        async def is_told(status: int, trouble: str) -> bool:
            health, metrics = await site.http.get("/health"), await http.get("/metrics")
            return health.status_code == status and f"{sample} {trouble}" in metrics.text

        await until(lambda: is_told(200, "0.0"))
        filler = fill(data)
        await until(lambda: is_told(503, "1.0"))
        told = examine_process(data, "web")
        assert not told.ok
        assert "the disk" in told.text
        found = await site.get("/api/messages")
        assert [each["text"] for each in found["messages"]] == ["before"]
        filler.unlink()
        await until(lambda: is_told(200, "0.0"))
        assert examine_process(data, "web").ok


async def test_a_file_that_becomes_damaged_is_told(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, alice_on(tmp_path, script) as (alice, tendril):
        for number in range(40):
            await alice.say(ROOM, f"{number} " + "frog " * 60)
        await alice.settle()
        await tendril.services.log.flush()
        path = tmp_path / "irc.db"
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (root,) = file.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = 'events'"
            ).fetchone()
        with path.open("r+b") as torn:
            torn.seek((root - 1) * 4096)
            torn.write(os.urandom(4096))
        await alice.say(ROOM, "after")
        await in_state(tendril, ProcessState.WAITING, "malformed")
        assert "malformed" in await said_by(alice, ".status", "queue")
