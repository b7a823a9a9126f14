"""Our own lines: cut to what a server passes on, and followed after they have gone out.

A server puts our own `:nick!user@host ` in front of what we send and cuts at its line length, so
the space for a text is counted in bytes from what the others will receive. A line never ends
within a grapheme cluster: what a reader sees as one character, such as joined emoji or a flag.

https://ircv3.net/specs/extensions/echo-message and
https://ircv3.net/specs/extensions/labeled-response tell which line arrived. 417, ERR_INPUTTOOLONG
(https://modern.ircdocs.horse/), does not say which line it means: a server reads lines in order and
refuses by length, so it was the longest of the last ones.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import regex

from harnesses.irc.protocol.isupport import ISupport
from harnesses.irc.protocol.message import Message, Source, parse

LEAST = 4
"""The smallest budget in bytes: one character of UTF-8."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"[ \t]*[^ \t]+")
_CLUSTER = regex.compile(r"\X")  # an extended grapheme cluster of Unicode Standard Annex 29
_MOSTLY_EMPTY = 3  # a line of less than a third of its space is filled rather than left so
_LEAST_PIECE = 40  # bytes of space that are worth the beginning of a word
_ACTION_BYTES = len("\x01ACTION \x01")


def budget(isupport: ISupport, source: Source, command: str, target: str) -> int:
    """Return the bytes of text that fit on a line of `command` to `target`.

    `command` is PRIVMSG, NOTICE or ACTION, `source` who we are; an unknown user or host counts as
    the longest that the server allows.
    """
    # What others receive is ":nick!user@host PRIVMSG target :text", within LINELEN bytes with CRLF.
    nick = max(len(source.nick.encode()), 1)
    user = len(source.user.encode()) if source.user else isupport.userlen
    host = len(source.host.encode()) if source.host else isupport.hostlen
    wire = "PRIVMSG" if command == "ACTION" else command
    taken = len(":!@ ") + nick + user + host + len(f"{wire} {target} :".encode()) + len("\r\n")
    return max(isupport.linelen - taken - (_ACTION_BYTES if command == "ACTION" else 0), LEAST)


def split(text: str, budget_bytes: int) -> list[str]:
    """Split `text` into lines of at most `budget_bytes` of UTF-8 each, in order.

    Line breaks in `text` are kept as line ends, blank lines are left out. A line too long is cut
    between words, where the white space of the cut goes; a word too long for any line fills the one
    that has begun and is cut between grapheme clusters, and so is one that would leave most of it
    empty, as in languages without spaces, unless it is an address.
    NUL, which IRC cannot carry, is left out; a lone surrogate becomes `?`.
    Raises ValueError when the budget is below `LEAST`.
    """
    if budget_bytes < LEAST:
        raise ValueError(f"a line needs {LEAST} bytes at least, not {budget_bytes}")
    sendable = text.replace("\0", "").encode("utf-8", "replace").decode()
    return [
        line
        for paragraph in _LINE_BREAK.split(sendable)
        if paragraph.strip()
        for line in _lines(paragraph, budget_bytes)
        if line.strip()
    ]


def _lines(paragraph: str, budget_bytes: int) -> Iterator[str]:
    line = ""
    for word in _WORD.findall(paragraph):
        if _size(line + word) <= budget_bytes:
            line += word
            continue
        if not _fills(line, word, budget_bytes):
            if line:
                yield line
            line, word = "", word.lstrip(" \t")
        *full, line = _pieces(word, budget_bytes, line)
        yield from full
    yield line


def _fills(line: str, word: str, budget_bytes: int) -> bool:
    """Return whether a word that does not fit goes on in the line rather than to the next one."""
    if not line.strip():
        return False
    bare = word.lstrip(" \t")
    if _size(bare) > budget_bytes:
        return _size(line) + _LEAST_PIECE <= budget_bytes
    return "://" not in bare and _size(line) * _MOSTLY_EMPTY <= budget_bytes


def _pieces(word: str, budget_bytes: int, piece: str) -> Iterator[str]:
    """Yield `piece` with as much of `word` as fits, and the rest of it in further lines."""
    for cluster in _CLUSTER.findall(word):
        # A cluster of any length is possible (stacked marks): then its characters are the pieces.
        for part in [cluster] if _size(cluster) <= budget_bytes else cluster:
            if piece and _size(piece + part) > budget_bytes:
                yield piece
                piece = ""
            piece += part
    yield piece


def _size(text: str) -> int:
    return len(text.encode())


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
    """The server's word on a line of ours; `reason` is what it says of one that is refused, `nick`
    the one that we had then."""

    status: ReceiptStatus
    reason: str = ""
    nick: str = ""


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
