"""What becomes of our own lines: echo-message, told apart by labeled-response.

https://ircv3.net/specs/extensions/echo-message, https://ircv3.net/specs/extensions/labeled-response
"""

from __future__ import annotations

import itertools

from harnesses.irc.protocol.message import Message


class LabelTracker:
    """Labels for lines, and what the server says to each.

    A labelled line is shown back to us when it has reached the channel; its sender has it then,
    so it is no event. An error in its place means that it has not.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: set[str] = set()
        self._closed: list[tuple[str, bool]] = []

    def label(self) -> str:
        """A label for one line."""
        label = f"t{next(self._numbers):x}"
        self._open.add(label)
        return label

    def on_message(self, message: Message) -> bool:
        """Take a message of the server; whether it is the answer to a labelled line."""
        label = message.tags.get("label", "")
        if label not in self._open:
            return False
        self._open.discard(label)
        self._closed.append((label, not _is_error(message)))
        return True

    def confirm(self, label: str) -> None:
        """Count a line as one that goes through, whatever was said of it."""
        self._open.discard(label)
        self._closed = [entry for entry in self._closed if entry[0] != label]
        self._closed.append((label, True))

    def pop_results(self) -> list[tuple[str, bool]]:
        """The labels answered since the last call, each with whether its line went through."""
        closed, self._closed = self._closed, []
        return closed


def _is_error(message: Message) -> bool:
    return message.command == "FAIL" or (message.command.isdigit() and message.command >= "400")
