"""A conversation in the terminal, remembered in DATA/chat.db."""

from __future__ import annotations

import asyncio
import getpass
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import ClassVar

from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn_request import TurnRequest
from harnesses.core.terminal import strip_control_chars
from llm.skills.learned import TEACH, TeachingTools, is_lesson
from terrarium.config import Config

CONVERSATION = "terminal"
HELP = "/clear forgets what was said, /quit or Ctrl-D ends"

_STDIN = 0
_PROMPT = "> "


class TerminalChat(Tendril):
    """Answers each line of standard input. `write` gets text as it comes, newlines included."""

    name: ClassVar[str] = "chat"

    def __init__(self, config: Config, write: Callable[[str], None]) -> None:
        super().__init__(config)
        self._write = write

    async def serve(self) -> None:
        """Answer lines until the input ends."""
        self.status.ready()
        who = getpass.getuser()
        if os.isatty(_STDIN):
            self._write(f"{HELP}\n{_PROMPT}")
        async for line in _lines():
            if line == "/quit":
                return
            if line == "/clear":
                turns = await self.clear(CONVERSATION)
                self._write(f"forgotten: {turns} turns\n")
            elif line:
                await self._respond(who, line)
            if os.isatty(_STDIN):
                self._write(_PROMPT)

    async def _respond(self, who: str, line: str) -> None:
        said = ""

        async def show(piece: str) -> None:
            nonlocal said
            said += piece
            self._write(strip_control_chars(piece))

        teaching = TeachingTools(self.skills, CONVERSATION, who, self.clock.now)
        result = await self.turn(
            TurnRequest(
                conversation=CONVERSATION,
                who=who,
                text=line,
                tools=[teaching] if is_lesson(line) else (),
                rights=lambda: {TEACH},
                on_text=show,
            )
        )
        if not said.rstrip().endswith(result.text):
            self._write(("\n" if said else "") + strip_control_chars(result.text))
        self._write("\n")


async def _lines() -> AsyncIterator[str]:
    """Yield the lines of standard input, stripped. A daemon thread reads them, as a file cannot be
    polled and a blocked read must not delay the end of the process."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        piece = b"-"
        while piece:
            piece = os.read(_STDIN, 65_536)  # not sys.stdin: its lock would hold up our end
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    threading.Thread(target=read, daemon=True).start()
    rest = b""
    while piece := await pieces.get():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").strip()
    if rest.strip():
        yield rest.decode("utf-8", "replace").strip()
