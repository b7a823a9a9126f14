"""Asynchronous line input: with editing and a history on a terminal, plain from a pipe."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STDIN = 0
_MAX_HISTORY_LINES = 1_000  # lines in the history


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

        with _terminal_restored(self.is_terminal):
            threading.Thread(target=read, daemon=True).start()
            while True:
                self._wanted.release()  # only now, so that the prompt appears after the answer
                line = await arrived.get()
                if line is None:
                    return
                yield line

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


@contextmanager
def _terminal_restored(is_terminal: bool) -> Iterator[None]:
    """Restore the terminal's settings at the end, when readline may be waiting for a line."""
    before = termios.tcgetattr(_STDIN) if is_terminal else None
    try:
        yield
    finally:
        if before is not None:
            sys.stdout.write("\n")
            sys.stdout.flush()
            termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)
