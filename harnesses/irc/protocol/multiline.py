"""Messages of several lines, put together: https://ircv3.net/specs/extensions/multiline.

They come as a batch with a PRIVMSG or NOTICE for each line. What belongs to the whole message, as
its time and its id, is told where the batch begins.
"""

from __future__ import annotations

from harnesses.irc.protocol.message import Message

MULTILINE = "draft/multiline"
CONCAT = "draft/multiline-concat"
"""The tag of a line that goes on with the one before it."""

MOST_LINES, MOST_CHARACTERS = 100, 64 * 1024
"""Of one message; what goes beyond it is passed on by itself, as part of the batch."""

OPEN_AT_ONCE = 20
"""Messages that may be on their way at the same time."""


class MultilineAssembler:
    """Collects lines until their message is whole."""

    def __init__(self) -> None:
        self._open: dict[str, _Batch] = {}

    def feed(self, message: Message) -> list[Message]:
        """Take any message of the server; return what is to be handled now, in order.

        That is the message itself, or nothing while lines are kept; with the last of them comes
        one message whose text has line breaks.
        """
        if message.command == "BATCH":
            return [message, *self._batch(message)]
        reference = message.tags.get("batch", "")
        parts = self._open.get(reference)
        if parts is None or not parts.add(message):
            return [message]
        return self._end(reference) if parts.full else []

    def _batch(self, message: Message) -> list[Message]:
        reference = message.param(0)
        if not reference.startswith("+"):
            return self._end(reference[1:])
        if message.param(1) == MULTILINE and len(self._open) < OPEN_AT_ONCE:
            self._open[reference[1:]] = _Batch(message)
        return []

    def _end(self, reference: str) -> list[Message]:
        parts = self._open.pop(reference, None)
        whole = parts.whole() if parts else None
        return [whole] if whole else []


class _Batch:
    """The lines of a message since its batch was opened."""

    def __init__(self, opening: Message) -> None:
        self._opening = opening
        self._lines: list[Message] = []
        self._text = ""

    @property
    def full(self) -> bool:
        return len(self._lines) >= MOST_LINES or len(self._text) >= MOST_CHARACTERS

    def add(self, line: Message) -> bool:
        """Add a line, if it can be one of this message: CTCP, for one, cannot."""
        text, first = line.param(1), self._lines[0] if self._lines else line
        if line.command not in ("PRIVMSG", "NOTICE") or text.startswith("\x01"):
            return False
        if line.param(0) != self._opening.param(2):
            return False
        if (line.command, line.source) != (first.command, first.source):
            return False
        if self._lines:
            # A concat line goes on in the same line of text: its sender had to cut a long one.
            self._text += "" if CONCAT in line.tags else "\n"
        self._text += text
        self._lines.append(line)
        return True

    def whole(self) -> Message | None:
        """Return the message, if there was a line."""
        if not self._lines:
            return None
        first = self._lines[0]
        tags = {name: value for name, value in first.tags.items() if name not in ("batch", CONCAT)}
        params = (first.param(0), self._text)
        return Message(first.command, params, first.source, tags | dict(self._opening.tags))
