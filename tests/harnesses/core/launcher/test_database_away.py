"""Processes that start while PostgreSQL is away wait for it instead of ending."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harnesses.core.tendril.status import ProcessState, read_report
from terrarium.supervision import SUPERVISED
from tests.kit.command import begun, line_with, terrarium
from tests.kit.irc_client import irc_client
from tests.kit.ircd import inspircd
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port
from tests.kit.postgres import PostgresServer, postgres_server

NOBODY = "http://127.0.0.1:9"  # no agent server listens there
pytestmark = [pytest.mark.process, pytest.mark.postgres]


@asynccontextmanager
async def killed() -> AsyncIterator[tuple[PostgresServer, str]]:
    """A server that was killed, and the URL of a database of it."""
    with postgres_server(durable=False) as server:
        url = server.create("bot")
        server.kill()
        yield server, url


async def test_a_tendril_connects_once_its_database_is_there(tmp_path: Path) -> None:
    async with killed() as (server, url), inspircd() as ircd:
        settings = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(ircd.port), "STORAGE_URL": url}
        settings |= {"AGENT_API_URL": NOBODY}
        async with (
            irc_client(ircd.port, "ada") as ada,
            begun("run", "irc", "--data", "data", cwd=tmp_path, **settings) as process,
        ):
            await ada.join("#terrarium")
            await line_with(process.stderr, "waiting for it")
            async with asyncio.timeout(PATIENCE):  # between two attempts to start
                while (said := read_report(tmp_path / "data", "irc")) is None or (  # noqa: ASYNC110
                    said.state is not ProcessState.WAITING
                ):
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(server.start)
            await ada.expect(r"^:Terra!\S+ JOIN ")
            process.send_signal(signal.SIGTERM)
            await process.communicate()
            assert process.returncode == 0


@pytest.mark.parametrize(
    ("command", "supervised"),
    [(("run", "web"), False), (("run", "web"), True), (("server",), False)],
)
async def test_what_waits_for_the_database_can_be_stopped_and_ends_with_its_supervisor(
    command: tuple[str, ...], supervised: bool, tmp_path: Path
) -> None:
    settings = {"SERVER_PORT": str(free_port()), "WEB_PORT": str(free_port())}
    settings |= {SUPERVISED: "1"} if supervised else {}
    async with (
        killed() as (_, url),
        begun(*command, "--data", "data", cwd=tmp_path, **settings, STORAGE_URL=url) as process,
        asyncio.timeout(PATIENCE),
    ):
        await line_with(process.stderr, "waiting for it")
        if supervised:
            assert process.stdin
            process.stdin.close()
            assert await process.wait() == 0
            return
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode in (0, -signal.SIGTERM)  # it may be at an attempt to start


async def test_lines_heard_while_the_database_is_away_survive_a_kill(tmp_path: Path) -> None:
    with postgres_server() as server:
        async with inspircd() as ircd, irc_client(ircd.port, "ada") as ada:
            settings = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(ircd.port)}
            settings |= {"AGENT_API_URL": NOBODY, "STORAGE_URL": server.create("bot")}
            await ada.join("#terrarium")
            async with begun("run", "irc", cwd=tmp_path, **settings) as process:
                await ada.expect(r"^:Terra!\S+ JOIN ")
                await ada.say("#terrarium", "line 1")
                server.kill()
                for number in range(2, 5):
                    await ada.say("#terrarium", f"line {number}")
                await ada.settle()
                await line_with(process.stderr, "log.write_failed")
                process.kill()
                await ada.expect(r"^:Terra!\S+ QUIT ")
            await asyncio.to_thread(server.start)
            async with begun("run", "irc", cwd=tmp_path, **settings) as process:
                await ada.expect(r"^:Terra!\S+ JOIN ")
                process.send_signal(signal.SIGTERM)
                await process.communicate()
        done = await terrarium("logs", "export", cwd=tmp_path, **settings)
    assert re.findall(r"line \d", done.out) == [f"line {number}" for number in range(1, 5)]
    assert not list((tmp_path / "data" / "run").glob("*.journal"))


async def test_everything_starts_once_the_database_is_there(tmp_path: Path) -> None:
    ports = {name: str(free_port()) for name in ("SERVER_PORT", "WEB_PORT")}
    async with (
        killed() as (server, url),
        ScriptedOpenAI() as script,
        begun(
            *("up", "--data", "data"),
            cwd=tmp_path,
            UP_TENDRILS="web",
            MODEL_UPSTREAM=script.url,
            STORAGE_URL=url,
            **ports,
        ) as process,
    ):
        await line_with(process.stderr, "waiting for it")
        await asyncio.to_thread(server.start)
        await line_with(process.stdout, "ready")
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 0


async def test_a_database_that_does_not_exist_is_not_waited_for(tmp_path: Path) -> None:
    with postgres_server(durable=False) as server:
        done = await terrarium("run", "web", cwd=tmp_path, STORAGE_URL=server.url("another"))
    assert done.status == 1
    assert 'database "another" does not exist' in done.err
