"""`terrarium up` as a person starts it: real server, real IRC, real tendrils; the model is a
script, because its words matter here."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
import pytest

from harnesses.core.tendril.status import read_report
from tests.kit.command import begun, gone, line_with, terrarium
from tests.kit.irc_client import irc_client
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port

FREE = {"SERVER_PORT": "0", "WEB_PORT": "0", "UP_IRC_PORT": "0"}


@dataclass(frozen=True, slots=True)
class Running:
    """A `terrarium up` that is ready: its first line, and every process below it."""

    process: Process
    data: Path
    line: str
    below: list[psutil.Process]

    def address(self, before: str) -> str:
        """The address that stands after `before` in the ready line."""
        return self.line.split(before)[1].split()[0]

    @property
    def irc_port(self) -> int:
        return int(self.address("IRC").split(":")[1])

    async def ended(self) -> int:
        """The exit status; fails when anything is left running."""
        async with asyncio.timeout(PATIENCE):
            await self.process.communicate()
        await gone(self.below)
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def up(data: Path, script: ScriptedOpenAI) -> AsyncIterator[Running]:
    command = begun("up", "--data", ".", cwd=data, MODEL_UPSTREAM=script.url, **FREE)
    async with command as process:
        line = await line_with(process.stdout, "ready")
        below = psutil.Process(process.pid).children(recursive=True)
        yield Running(process, data, line, below)


async def answered(port: int, nick: str, expected: str) -> None:
    """A person asks on the channel until the bot is there to answer."""
    async with irc_client(port, nick) as person:
        await person.join("#terrarium")
        await person.settle()
        if not any(" 353 " in line and "Terra" in line for line in person.lines):
            await person.expect(r"^:Terra!\S+ JOIN ")
        await person.say("#terrarium", ".terrarium tell me a story")
        await person.expect(rf"PRIVMSG #terrarium :{nick}: {expected}")


async def test_once_ready_it_answers_refuses_a_second_one_and_restarts_a_killed_tendril(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, up(tmp_path, script) as running:
        assert running.line.startswith("ready ")
        hint = await line_with(running.process.stdout, "irssi")
        assert hint.endswith(f"irssi -c 127.0.0.1 -p {running.irc_port}")
        await line_with(running.process.stdout, ".terrarium what is the capital of France?")
        script.say("I can listen.")
        await answered(running.irc_port, "ada", "I can listen.")
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
            page = await http.get(running.address("web"))
            ready = await http.get(running.address("agent server") + "/ready")
        assert (page.status_code, ready.status_code) == (200, 200)
        assert len(running.below) >= 5
        second = await terrarium("up", "--data", ".", cwd=tmp_path, **FREE)
        assert second.status == 78
        assert str(running.process.pid) in second.err
        assert "--data DIR" in second.err
        said = read_report(tmp_path, "irc")
        assert said is not None
        os.kill(said.pid, signal.SIGKILL)
        line = await line_with(running.process.stderr, "irc ended")
        assert line == "irc ended (signal 9); starting it again in 0.5 s"
        script.say("I am back.")
        await answered(running.irc_port, "ada", "I am back.")
        running.process.send_signal(signal.SIGINT)
        assert await running.ended() == 0


async def test_nothing_outlives_an_up_that_is_killed(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, up(tmp_path, script) as running:
        running.process.kill()
        assert await running.ended() == -signal.SIGKILL


@pytest.mark.server
@pytest.mark.parametrize(
    ("variable", "key", "who"),
    [
        ("SERVER_PORT", "[server] port", "agent server"),
        ("WEB_PORT", "[web] port", "web tendril"),
        ("UP_IRC_PORT", "[up] irc_port", "IRC server"),
    ],
)
async def test_a_taken_port_is_named_with_who_needs_it_and_the_setting(
    variable: str, key: str, who: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = await terrarium("up", "--data", ".", cwd=tmp_path, **FREE | {variable: port})
    assert done.status == 78
    assert done.err.count("\n") == 1
    for words in (port, variable, key, who):
        assert words in done.err


async def test_a_model_that_is_away_is_said_to_be_and_waited_for(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with begun("up", "--data", ".", cwd=tmp_path, MODEL_UPSTREAM=url, **FREE) as process:
        said = await line_with(process.stderr, "no model answers")
        assert url in said
        waiting = await line_with(process.stderr, "waiting for")
        assert "no model answers yet" in waiting
        assert "irc" not in waiting
        process.send_signal(signal.SIGTERM)
        out, _ = await process.communicate()
        assert (process.returncode, out) == (0, b"")


async def test_a_child_that_refuses_its_configuration_ends_everything(tmp_path: Path) -> None:
    (tmp_path / "not-a-model.gguf").write_text("words")
    path = str(tmp_path / "not-a-model.gguf")
    done = await terrarium("up", "--data", ".", cwd=tmp_path, MODEL_PATH=path, **FREE)
    assert done.status == 78
    assert f"{path} is not a GGUF file" in done.err
    assert done.err.splitlines()[-1].startswith("terrarium: server cannot work with this")
    assert done.out == ""
