"""Each kind of scaffold, created, installed, tested, run and talked to from a temporary folder."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harnesses.core.scaffold import Kind
from harnesses.core.tendril.status import ProcessState, read_report
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.outbox import Outbox
from tests.kit.command import environment_without_settings
from tests.kit.data_files import outbox_path
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port

WITHOUT = "-p no:schemathesis"  # a plugin that is installed here, and slow to load


class NewTendril:
    """A package `letters` that is installed beside Terrarium, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self._site = folder / "site"

    async def run(self, *command: str, cwd: str = ".") -> str:
        """Return the output of a Python command that sees the package."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            cwd=self.folder / cwd,
            env=os.environ
            | {"PYTHONPATH": str(self._site), "PYTEST_ADDOPTS": "-p no:schemathesis"},
            stdout=PIPE,
            stderr=PIPE,
        )
        async with asyncio.timeout(PATIENCE):
            output, errors = await process.communicate()
        assert process.returncode == 0, (output + errors).decode()
        return output.decode()

    async def create(self, kind: Kind) -> None:
        """Create, install and test it by the commands that people use."""
        cli = ("-m", "harnesses.cli", "new", "letters", "--kind", kind)
        assert "letters/ is a working tendril" in await self.run(*cli)
        # Without isolation: what builds it is installed here, and need not be again.
        pip = ("-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation")
        await self.run(*pip, "--target", str(self._site), "./letters")
        assert " passed" in await self.run("-m", "pytest", "letters")

    @asynccontextmanager
    async def running(self, script: ScriptedOpenAI, **environment: str) -> AsyncIterator[None]:
        """Run it as a process of its own, ready at the beginning of the block."""
        settings = {"AGENT_API_URL": script.url, "PYTHONPATH": str(self._site), **environment}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "harnesses.cli", "run", "letters", "--data", "data"),
            cwd=self.folder,
            env=environment_without_settings() | settings,
        )
        try:
            await self._ready(process)
            yield
            process.terminate()
            async with asyncio.timeout(PATIENCE):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _ready(self, process: asyncio.subprocess.Process) -> None:
        async with asyncio.timeout(PATIENCE):
            while process.returncode is None:
                said = read_report(self.data, "letters")
                if said and said.state is ProcessState.READY:
                    return
                await asyncio.sleep(0.05)
        raise AssertionError("it ended before it was ready")


@pytest.fixture
def new(tmp_path: Path) -> NewTendril:
    return NewTendril(tmp_path)


@pytest.mark.slow
@pytest.mark.process
async def test_a_new_tool_tendril_is_installed_tested_run_and_asked(new: NewTendril) -> None:
    await new.create(Kind.TOOL)
    async with ScriptedOpenAI() as script, new.running(script):
        folder = new.data / "letters"
        (folder / "notes.txt").write_text("tea at four")
        script.call("read_file", {"name": "notes.txt"}).say("At four.")
        (folder / "tea.ask").write_text("When is tea, by notes.txt?")
        await script.arrived(2)
        assert "tea at four" in str(script.requests[1]["messages"][-1])
        await appears(folder / "tea.answer")
        assert (folder / "tea.answer").read_text() == "At four.\n"


@pytest.mark.process
async def test_a_new_chat_tendril_is_installed_tested_run_and_talked_to(new: NewTendril) -> None:
    await new.create(Kind.CHAT)
    port = free_port()
    async with ScriptedOpenAI() as script, new.running(script, LETTERS_PORT=str(port)):
        script.say("At four.")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"ada\ntea is at four\nTerra: when is tea?\n")
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"<Terra> ")
        async with Database.open(outbox_path(new.data)) as database:
            place = Place("", "#letters")
            await Outbox(database).put("test/1", place, "the tea is ready", tendril="letters")
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"<Terra> the tea is ready\n")
        writer.close()


@pytest.mark.process
async def test_a_new_watcher_is_installed_tested_run_and_shown_a_file(new: NewTendril) -> None:
    await new.create(Kind.WATCHER)
    async with ScriptedOpenAI() as script, new.running(script, LETTERS_EVERY="0.1"):
        script.say("Tea is at four.")
        (new.data / "letters" / "news.txt").write_text("tea at four")
        await appears(new.data / "letters" / "reported" / "news.txt")
    async with Database.open(outbox_path(new.data)) as database:
        (message,) = await Outbox(database).list_unsent("irc")
    assert (message.place.channel, message.text) == ("#terrarium", "news.txt: Tea is at four.")


async def appears(path: Path) -> None:
    """Wait until another process has written a file."""
    async with asyncio.timeout(PATIENCE):
        while not is_written(path):  # noqa: ASYNC110 -- a foreign process announces nothing
            await asyncio.sleep(0.05)


def is_written(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
