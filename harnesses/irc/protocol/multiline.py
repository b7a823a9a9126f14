"""Reassembly of multiline messages: https://ircv3.net/specs/extensions/multiline.

A multiline message is a batch with one PRIVMSG or NOTICE per line. Tags of the whole message, such
as `time` and `msgid`, are on the line that opens the batch.
"""

from __future__ import annotations

from harnesses.irc.protocol.message import Message

MULTILINE = "draft/multiline"
CONCAT = "draft/multiline-concat"
"""The tag of a line that continues the previous one without a line break."""

MAX_LINES, MAX_CHARACTERS = 100, 64 * 1024
"""Limits of one message. Lines beyond them are passed on as single messages of the batch."""

MAX_OPEN = 20
"""Maximum number of open multiline batches; it bounds the memory that a server can make us use."""


class MultilineAssembler:
    """Assembler of multiline messages from the lines of their batches."""

    def __init__(self) -> None:
        self._open: dict[str, _Batch] = {}

    def feed(self, message: Message) -> list[Message]:
        """Process a received message; return the messages to handle now, in order.

        A line of an open multiline batch is held back. The end of the batch yields one message
        whose text contains line breaks. Any other message is returned unchanged.
        """
        if message.command == "BATCH":
            return [message, *self._batch(message)]
        reference = message.tags.get("batch", "")
        parts = self._open.get(reference)
        if parts is None or not parts.add(message):
            return [message]
        # A full message is delivered as it is; further lines of its batch find none open.
        return self._end(reference) if parts.full else []

    def _batch(self, message: Message) -> list[Message]:
        reference = message.param(0)
        if not reference.startswith("+"):
            return self._end(reference[1:])
        if message.param(1) == MULTILINE and len(self._open) < MAX_OPEN:
            self._open[reference[1:]] = _Batch(message)
        return []

    def _end(self, reference: str) -> list[Message]:
        parts = self._open.pop(reference, None)
        whole = parts.whole() if parts else None
        return [whole] if whole else []


class _Batch:
    """An open multiline batch and the lines received for it."""

    def __init__(self, opening: Message) -> None:
        self._opening = opening
        self._lines: list[Message] = []
        self._text = ""

    @property
    def full(self) -> bool:
        return len(self._lines) >= MAX_LINES or len(self._text) >= MAX_CHARACTERS

    def add(self, line: Message) -> bool:
        """Add a line and return True, or return False if it cannot belong to this message.

        All lines must have the same command, source and target, so that no line is attributed to
        another sender. CTCP is left to be handled as a message by itself.
        """
        text, first = line.param(1), self._lines[0] if self._lines else line
        if line.command not in ("PRIVMSG", "NOTICE") or text.startswith("\x01"):
            return False
        if line.param(0) != self._opening.param(2):
            return False
        if (line.command, line.source) != (first.command, first.source):
            return False
        if self._lines:
            # The sender had to split a line of text that was too long for one IRC line.
            self._text += "" if CONCAT in line.tags else "\n"
        self._text += text
        self._lines.append(line)
        return True

    def whole(self) -> Message | None:
        """Return the assembled message, or None if no line was received."""
        if not self._lines:
            return None
        # Tags of the batch (time, msgid) override those of its first line.
        first = self._lines[0]
        tags = {name: value for name, value in first.tags.items() if name not in ("batch", CONCAT)}
        params = (first.param(0), self._text)
        return Message(first.command, params, first.source, tags | dict(self._opening.tags))
