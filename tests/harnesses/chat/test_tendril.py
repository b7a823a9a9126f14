"""The chat on a real terminal: lines are edited, and earlier ones come back."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.kit.command import environment_without_settings, terrarium
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE

UP, HOME, END_OF_FILE = "\x1b[A", "\x01", "\x04"


class Terminal:
    """A terminal that somebody types on; `shown` is all that was to be seen."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.shown = ""
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    async def shows(self, text: str, times: int = 1) -> None:
        """Wait until a text was to be seen so many times."""
        async with asyncio.timeout(PATIENCE):
            while self.shown.count(text) < times:
                await self._news.wait()
                self._news.clear()

    def _read(self) -> None:
        with suppress(OSError):  # the program has ended
            self.shown += os.read(self._descriptor, 65_536).decode("utf-8", "replace")
            self._news.set()


@asynccontextmanager
async def chat(data: Path, url: str) -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    environment = environment_without_settings() | {"AGENT_API_URL": url, "TERM": "xterm"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harnesses.cli", "chat", "--data", str(data)),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    terminal = Terminal(ours)
    try:
        yield terminal
        terminal.type(END_OF_FILE)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.process
async def test_lines_are_edited_and_earlier_ones_come_back_after_a_restart(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        script.say("At six.").say("At seven.").say("At eight.")
        async with chat(tmp_path, script.url) as terminal:
            await terminal.shows("> ")
            terminal.type(f"is it?{HOME}when \r")
            await terminal.shows("At six.")
            await terminal.shows("> ", 2)
            terminal.type(f"{UP}\r")
            await terminal.shows("At seven.")
            await terminal.shows("> ", 3)
        async with chat(tmp_path, script.url) as terminal:
            await terminal.shows("> ")
            terminal.type(f"{UP}\r")
            await terminal.shows("At eight.")
            await terminal.shows("> ", 2)
        asked = [request["messages"][-1]["content"] for request in script.requests]
    assert all("when is it?" in text for text in asked)
    history = tmp_path / "run" / "chat.history"
    assert "when is it?" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


@pytest.mark.process
async def test_commands_tell_what_there_is_and_ask_no_model(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        done = await terrarium(
            *("chat", "--data", "."),
            cwd=tmp_path,
            said=".help\n/tools\n/nothing\n.nolog\n.remind in 1 hour tea\n.reminders\n"
            ".forget me\n.quit\nhi\n",
            AGENT_API_URL=script.url,
        )
        assert script.requests == []
    assert ".clear .compact" in done.out
    assert (
        ": tea\nForgotten: our conversation of 0 turns, 0 facts, 1 reminder and 0 reports.\n"
        in done.out
    )
    assert "remember: " in done.out
    assert "Nothing you write here is logged." in done.out
    assert "There is no command nothing; .help lists them." in done.out


@pytest.mark.process
async def test_chat_is_a_tendril_like_any_other(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        script.say("Hello.")
        done = await terrarium(
            *("run", "chat", "--data", "."), cwd=tmp_path, said="hi\n", AGENT_API_URL=script.url
        )
    assert (done.status, done.out) == (0, "Hello.\n")
