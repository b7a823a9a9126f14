"""Lines that a server finds too long: 417, ERR_INPUTTOOLONG, of https://modern.ircdocs.horse/.

The server does not say which line it was. It reads them in order and refuses by length, so it was
the longest of the last ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from harnesses.irc.protocol.line_splitting import LEAST, split
from harnesses.irc.protocol.message import Message, parse

KEPT, WITHIN = 50, timedelta(seconds=10)
"""Lines among which the refused one is looked for, and how long ago it can have been written."""

_ACTION = "\x01ACTION "


class SentLines:
    """The last lines that went out. `now` returns the time."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lines: deque[tuple[datetime, int, Message]] = deque(maxlen=KEPT)
        self._pieces: deque[tuple[str, ...]] = deque(maxlen=KEPT)

    def add(self, line: str) -> None:
        """A line has gone out."""
        if message := parse(line):
            size = len(line.encode("utf-8", "replace"))
            self._lines.append((self._now(), size, message))

    def take_rejected(self, label: str) -> Message | None:
        """The line that was too long, which is no longer looked for; `label` is what the server
        has answered to, or ""."""
        since = self._now() - WITHIN
        lines = [entry for entry in self._lines if entry[0] >= since]
        named = [entry for entry in lines if label and entry[2].tags.get("label") == label]
        found = max(named or lines, key=lambda entry: entry[1], default=None)
        if found is None:
            return None
        self._lines.remove(found)
        return found[2]

    def pieces(self, message: Message) -> list[Message]:
        """What was said in `message`, as two lines or three; none when that cannot be cut, or has
        been cut before."""
        target, text = message.param(0), message.param(1)
        action = text.startswith(_ACTION)
        plain = text.removeprefix(_ACTION).removesuffix("\x01") if action else text
        said = message.command in ("PRIVMSG", "NOTICE") and not plain.startswith("\x01")
        if not said or message.params in self._pieces:
            return []
        cut = split(plain, max(LEAST, (len(plain.encode("utf-8", "replace")) + 1) // 2))
        texts = [f"{_ACTION}{piece}\x01" for piece in cut] if action else cut
        messages = [Message(message.command, (target, piece)) for piece in texts]
        self._pieces.extend(piece.params for piece in messages)
        return messages if len(messages) > 1 else []
