"""Our own lines after they have gone out: delivered, echoed, or refused as too long.

https://ircv3.net/specs/extensions/echo-message and
https://ircv3.net/specs/extensions/labeled-response tell which line arrived. 417, ERR_INPUTTOOLONG
(https://modern.ircdocs.horse/), does not say which line it means: a server reads lines in order and
refuses by length, so it was the longest of the last ones.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

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
        """Take a line that has gone out."""
        if message := parse(line):
            size = len(line.encode("utf-8", "replace"))
            self._lines.append((self._now(), size, message))

    def take_rejected(self, label: str) -> Message | None:
        """Return and forget the line that was too long; `label` is the one that the server
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
        """Return `message` cut into two lines or three; none when it cannot be cut, or has
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


class ReceiptStatus(Enum):
    """The fate of a line: LOST is one whose connection went before the server had it."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The server's word on a line of ours; `reason` is what it says of one that is refused."""

    status: ReceiptStatus
    reason: str = ""


ACCEPTED, LOST = Receipt(ReceiptStatus.ACCEPTED), Receipt(ReceiptStatus.LOST)


class ReceiptTracker:
    """Lines of ours on their way, and what the server says to each.

    Where it echoes, a line has a label, and is shown back to us when it has reached the channel;
    its sender has it then, so it is no event. An error in its place means that it has not. Where
    it does not, a PING follows the lines (`fence`): what it has not refused when it answers that,
    it has taken, as a server reads in order.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: set[str] = set()
        self._unlabelled: dict[str, str] = {}
        self._fences: dict[str, tuple[str, ...]] = {}
        self._closed: list[tuple[str, Receipt]] = []

    def track(self, target: str) -> str:
        """Return a number for a line without a label to a folded target."""
        number = f"u{next(self._numbers):x}"
        self._unlabelled[number] = target
        return number

    def fence(self) -> str:
        """Return the word for a PING that goes out after all lines that are tracked so far."""
        token = f"sent-{next(self._numbers):x}"
        self._fences[token] = tuple(self._unlabelled)
        return token

    def on_pong(self, token: str) -> None:
        """Take the answer to a PING."""
        for number in self._fences.pop(token, ()):
            if self._unlabelled.pop(number, None) is not None:
                self._closed.append((number, ACCEPTED))

    def on_refused(self, target: str, reason: str) -> bool:
        """Take an error about a folded target: it is about the oldest line to it. Return False when
        there is none on its way."""
        number = next((n for n, each in self._unlabelled.items() if each == target), None)
        if number is None:
            return False
        del self._unlabelled[number]
        self._closed.append((number, Receipt(ReceiptStatus.REFUSED, reason)))
        return True

    def label(self) -> str:
        """Return a label for one line."""
        label = f"t{next(self._numbers):x}"
        self._open.add(label)
        return label

    def on_message(self, message: Message) -> bool:
        """Take a message of the server; whether it is the answer to a labelled line."""
        label = message.tags.get("label", "")
        if label not in self._open:
            return False
        self._open.discard(label)
        refused = Receipt(ReceiptStatus.REFUSED, message.param(-1))
        self._closed.append((label, refused if _is_error(message) else ACCEPTED))
        return True

    def confirm(self, label: str) -> None:
        """Count a line as one that goes through, whatever was said of it."""
        self._open.discard(label)
        self._closed = [entry for entry in self._closed if entry[0] != label]
        self._closed.append((label, ACCEPTED))

    def pop_results(self) -> list[tuple[str, Receipt]]:
        """Return the labels and numbers of lines whose fate is known since the last call."""
        closed, self._closed = self._closed, []
        return closed


def _is_error(message: Message) -> bool:
    return message.command == "FAIL" or (message.command.isdigit() and message.command >= "400")
