"""The chat tendril: a conversation in the terminal, stored in DATA/chat.db.

Apart from helpers for the terminal, skills and tools it uses the public names of `terrarium` only.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import termios
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from harnesses.core.addresses import short_link
from harnesses.core.chat import ADMIN, DirectChat, ask_later
from harnesses.core.services.question_tools import Door
from harnesses.core.services.reminders import RunOutcome
from harnesses.core.tendril.status import web_address
from harnesses.core.text import strip_control_chars
from llm.memory.room import RoomMemory
from llm.skills.registry import TEACH
from llm.tools.toolbox import Toolbox
from storage.chat_log.event import PUBLIC, Event
from storage.chat_log.opt_outs import person_of
from storage.queues.reminders import Reminder
from terrarium import (
    CommandRequest,
    Config,
    Identity,
    Origin,
    Place,
    Tendril,
    TurnRequest,
    command,
)

_STDIN = 0
_MAX_HISTORY_LINES = 1_000  # lines in the history

CONVERSATION = "terminal"


class TerminalTendril(Tendril):
    """Answers the lines of standard input, streaming each answer to standard output."""

    name: ClassVar[str] = "chat"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._input = LineInput(config.data / "run" / "chat.history")
        self._is_over = False
        self._who = Identity(getpass.getuser(), account=getpass.getuser())

    async def serve(self) -> None:
        """Answer lines until the input ends."""
        self._chat = DirectChat(self)
        self.status.ready("in a terminal")
        if self._input.is_terminal:
            model = await self.resources.catalog.shown_name()
            _write(f"Terrarium with {model or 'no model yet'}; .help lists the commands.\n")
        async for line in self._input.lines("> "):
            if line:
                await self._respond(line)
            if self._is_over:
                return

    async def say(self, place: Place, text: str) -> bool:
        """Write a reminder between the lines; return False for another place."""
        if is_ours := place.channel == self._who.room(person_of):
            _write(f"\n{strip_control_chars(text)}\n")
        return is_ours

    async def clear(self, conversation: str) -> int:
        """Delete a conversation and the history of lines; return how many turns it had."""
        self._input.forget()
        return await super().clear(conversation)

    @command
    async def tools(self, request: CommandRequest) -> str:
        """tools: what the model can use"""
        memory = RoomMemory.of(self.memory, CONVERSATION, CONVERSATION, request.nick)
        more = (memory, *self.prompts.tools())
        toolbox = Toolbox.from_owners(self, *self._door_tools(), *more)
        functions = [schema["function"] for schema in toolbox.schemas()]
        return "\n".join(
            f"{each['name']}: {each['description'].splitlines()[0]}" for each in functions
        )

    @command
    async def quit(self, request: CommandRequest) -> str:
        """quit: end, as Ctrl-D does"""
        self._is_over = True
        return ""

    def _door_tools(self) -> list[object]:
        """Return the tools of the terminal. Whoever runs it may read all channels."""
        return self.tools_for(
            Door(
                log=self.log.tools_within(PUBLIC),
                address=lambda: web_address(self.config),
                room=CONVERSATION,
                who=self._who.nick,
            )
        )

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return the coroutines to run concurrently with `serve`: that of scheduled questions."""

        async def ask(reminder: Reminder) -> RunOutcome:
            return await ask_later(self, reminder, self._turn(reminder.text))

        return [*super().background(), self.remind.run_questions(ask)]

    def _link(self, event: Event) -> str | None:
        address = web_address(self.config)
        return f"{address}{short_link(event)}" if address else None

    def _turn(self, text: str) -> TurnRequest:
        return TurnRequest(
            conversation=CONVERSATION,
            who=self._who.nick,
            text=text,
            tools=self._door_tools(),
            log_window=self.log.view(PUBLIC, self._who, self._link),
            origin=Origin(self.name, self._who),
        )

    async def _respond(self, line: str) -> None:
        said = ""

        async def show(piece: str) -> None:
            nonlocal said
            said += piece
            _write(strip_control_chars(piece))

        text = f".{line[1:]}" if line.startswith("/") else line  # as people are used to
        turn = replace(self._turn(text), on_text=show)
        result = await self._chat.answer(turn, self._who, PUBLIC, lambda: {TEACH, ADMIN})
        if not said.rstrip().endswith(result.text):
            _write(("\n" if said else "") + strip_control_chars(result.text))
        if said or result.text:
            _write("\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class LineInput:
    """The lines of standard input. `history` is the file of earlier lines, used on a terminal."""

    def __init__(self, history: Path) -> None:
        self._history = history
        self._wanted = threading.Semaphore(0)
        self.is_terminal = os.isatty(_STDIN) and os.isatty(1)

    async def lines(self, prompt: str) -> AsyncIterator[str]:
        """Yield the lines, stripped, until the input ends.

        A daemon thread reads them: standard input may be a regular file, which cannot be polled,
        and a blocked read must not delay the end of the process.
        """
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[str | None] = asyncio.Queue()

        def read() -> None:
            for line in self._edited(prompt) if self.is_terminal else _piped():
                loop.call_soon_threadsafe(arrived.put_nowait, line.strip())
            loop.call_soon_threadsafe(arrived.put_nowait, None)

        before = termios.tcgetattr(_STDIN) if self.is_terminal else None
        try:
            threading.Thread(target=read, daemon=True).start()
            while True:
                self._wanted.release()  # only now, so that the prompt appears after the answer
                line = await arrived.get()
                if line is None:
                    return
                yield line
        finally:
            if before is not None:  # readline may be waiting for a line
                _write("\n")
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)

    def forget(self) -> None:
        """Delete the history, in memory and on disk."""
        if self.is_terminal:
            import readline

            readline.clear_history()
        self._history.unlink(missing_ok=True)

    def _edited(self, prompt: str) -> Iterator[str]:
        """Yield lines edited with readline; wait before each until it is requested."""
        import readline

        self._history.parent.mkdir(parents=True, exist_ok=True)
        self._history.touch(mode=0o600)
        with suppress(OSError):
            readline.read_history_file(self._history)
        readline.set_history_length(_MAX_HISTORY_LINES)
        while True:
            self._wanted.acquire()
            try:
                line = input(prompt)
            except EOFError:
                return
            with suppress(OSError):  # a full disk must not end the conversation
                readline.write_history_file(self._history)
            yield line


def _piped() -> Iterator[str]:
    rest = b""
    # Not sys.stdin: a thread blocked in it holds its lock, which the interpreter needs at exit.
    while piece := os.read(_STDIN, 65_536):
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in whole)
    if rest.strip():
        yield rest.decode("utf-8", "replace")
