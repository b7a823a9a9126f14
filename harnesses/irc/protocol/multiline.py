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
        self._open: dict[str, tuple[Message, list[Message]]] = {}

    def feed(self, message: Message) -> list[Message]:
        """Process a received message; return the messages to handle now, in order.

        A line of an open multiline batch is held back. The end of the batch yields one message
        whose text contains line breaks. Any other message is returned unchanged.
        """
        reference = message.param(0) if message.command == "BATCH" else ""
        if reference.startswith("+"):
            if message.param(1) == MULTILINE and len(self._open) < MAX_OPEN:
                self._open[reference[1:]] = message, []
            return [message]
        if message.command == "BATCH":
            return [message, *self._end(reference[1:])]
        batch = self._open.get(message.tags.get("batch", ""))
        if not batch:
            return [message]
        opening, lines = batch
        first = lines[0] if lines else message
        # All lines must have the same command, source and target, so that no line is attributed to
        # another sender. CTCP is left to be handled as a message by itself.
        if (
            message.command not in ("PRIVMSG", "NOTICE")
            or message.param(1).startswith("\x01")
            or message.param(0) != opening.param(2)
            or (message.command, message.source) != (first.command, first.source)
        ):
            return [message]
        lines.append(message)
        if len(lines) < MAX_LINES and sum(len(line.param(1)) for line in lines) < MAX_CHARACTERS:
            return []
        # A full message is delivered as it is; further lines of its batch find none open.
        return self._end(message.tags["batch"])

    def _end(self, reference: str) -> list[Message]:
        """Close a batch; return the message of its lines, if there were any."""
        opening, lines = self._open.pop(reference, (None, []))
        if not opening or not lines:
            return []
        first, *others = lines
        # CONCAT marks what the sender had to split, as it was too long for one IRC line.
        text = first.param(1) + "".join(
            ("" if CONCAT in line.tags else "\n") + line.param(1) for line in others
        )
        # Tags of the batch (time, msgid) override those of its first line.
        tags = {name: value for name, value in first.tags.items() if name not in ("batch", CONCAT)}
        return [
            Message(first.command, (first.param(0), text), first.source, {**tags, **opening.tags})
        ]
