"""Our own lines: splitting to the server's line length, and what the server did with them.

A server prepends `:nick!user@host ` to what we send and truncates the result at its line length, so
the budget for text is computed in bytes from the line that others will receive. A grapheme cluster
(what a reader sees as one character, such as a flag) is split only if it is longer than a line.

417, ERR_INPUTTOOLONG (https://modern.ircdocs.horse/), does not identify the rejected line. As it
depends on length alone, the longest of the recent lines is assumed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import regex

from harnesses.irc.protocol.events import Talk
from harnesses.irc.protocol.message import ISupport, Message, Source, parse

MIN_BUDGET = 4
"""The smallest budget in bytes: the longest UTF-8 encoding of a character."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"[ \t]*[^ \t]+")
_CLUSTER = regex.compile(r"\X")  # an extended grapheme cluster of Unicode Standard Annex 29
_MOSTLY_EMPTY = 3  # a line that uses less than 1/3 of its budget is filled with part of a word
_MIN_PIECE = 40  # bytes that must be free in a line for an overlong word to begin in it
_ACTION = "\x01ACTION "


def talk(kind: Talk, target: str, text: str) -> Message:
    """Return the message that says one line."""
    if kind == "ACTION":
        return Message("PRIVMSG", (target, f"{_ACTION}{text}\x01"))
    return Message(kind, (target, text))


def budget(isupport: ISupport, source: Source, kind: Talk, target: str) -> int:
    """Return how many bytes of text fit on a line to `target`; at least `MIN_BUDGET`.

    `source` is our own. An unknown user or host counts as
    the longest that the server allows.
    """
    # Others receive ":nick!user@host PRIVMSG target :text", within LINELEN bytes including CRLF.
    nick = max(len(source.nick.encode()), 1)
    user = len(source.user.encode()) if source.user else isupport.userlen
    host = len(source.host.encode()) if source.host else isupport.hostlen
    empty = talk(kind, target, "").render()
    taken = len(":!@ ") + nick + user + host + len(empty.encode()) + len("\r\n")
    return max(isupport.linelen - taken, MIN_BUDGET)


def split(text: str, budget_bytes: int) -> list[str]:
    """Split `text` into lines of at most `budget_bytes` of UTF-8 each, in order.

    Line breaks in `text` end a line; blank lines are dropped. A long line is split between words,
    and the white space at the split is dropped. A word is split between grapheme clusters, and
    begins in the current line, if it is longer than a line, or if moving it to the next line would
    leave the current one mostly empty (as in languages without spaces), unless it is a URL that
    fits on a line.
    NUL, which IRC cannot carry, is dropped; a lone surrogate becomes `?`.
    Raises ValueError if the budget is below `MIN_BUDGET`.
    """
    if budget_bytes < MIN_BUDGET:
        raise ValueError(f"a line needs {MIN_BUDGET} bytes at least, not {budget_bytes}")
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
        *full, line = _pieces(word, budget_bytes, line)  # the last piece may take further words
        yield from full
    yield line


def _fills(line: str, word: str, budget_bytes: int) -> bool:
    """Return whether to split a word that does not fit, instead of moving it to the next line."""
    if not line.strip():
        return False
    bare = word.lstrip(" \t")
    if _size(bare) > budget_bytes:
        return _size(line) + _MIN_PIECE <= budget_bytes
    return "://" not in bare and _size(line) * _MOSTLY_EMPTY <= budget_bytes


def _pieces(word: str, budget_bytes: int, piece: str) -> Iterator[str]:
    """Yield `piece` filled up with the beginning of `word`, then lines with the rest of it."""
    for cluster in _CLUSTER.findall(word):
        # Stacked combining marks can make a cluster longer than a line; split it by characters.
        for part in [cluster] if _size(cluster) <= budget_bytes else cluster:
            if piece and _size(piece + part) > budget_bytes:
                yield piece
                piece = ""
            piece += part
    yield piece


def _size(text: str) -> int:
    return len(text.encode())


MAX_SENT_LINES, SENT_LINES_AGE = 50, timedelta(seconds=10)
"""The number and maximum age of the sent lines among which a rejected one is looked for."""


class SentLines:
    """The most recently sent lines, to identify one that is rejected as too long (417)."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lines: deque[tuple[datetime, int, Message]] = deque(maxlen=MAX_SENT_LINES)
        self._pieces: deque[tuple[str, ...]] = deque(maxlen=MAX_SENT_LINES)

    def add(self, line: str) -> None:
        """Record a line that was written to the connection."""
        if message := parse(line):
            size = len(line.encode("utf-8", "replace"))
            self._lines.append((self._now(), size, message))

    def take_rejected(self, label: str) -> Message | None:
        """Remove and return the line that was too long, or None if no recent line qualifies.

        `label` is the label of the server's error, or "" if it has none.
        """
        since = self._now() - SENT_LINES_AGE
        lines = [entry for entry in self._lines if entry[0] >= since]
        named = [entry for entry in lines if label and entry[2].tags.get("label") == label]
        found = max(named or lines, key=lambda entry: entry[1], default=None)
        if found is None:
            return None
        self._lines.remove(found)
        return found[2]

    def split_once(self, message: Message) -> list[Message]:
        """Return `message` split into two or three messages.

        The result is empty if it is not a PRIVMSG, NOTICE or ACTION, cannot be split, or is itself
        such a piece.
        """
        # Pieces are remembered and not split again: our guess at the rejected line may be wrong,
        # and a server that answers everything with 417 must not make us send for ever.
        target, text = message.param(0), message.param(1)
        action = text.startswith(_ACTION)
        plain = text.removeprefix(_ACTION).removesuffix("\x01") if action else text
        said = message.command in ("PRIVMSG", "NOTICE") and not plain.startswith("\x01")
        if not said or message.params in self._pieces:
            return []
        cut = split(plain, max(MIN_BUDGET, (len(plain.encode("utf-8", "replace")) + 1) // 2))
        texts = [f"{_ACTION}{piece}\x01" for piece in cut] if action else cut
        messages = [Message(message.command, (target, piece)) for piece in texts]
        self._pieces.extend(piece.params for piece in messages)
        return messages if len(messages) > 1 else []


class ReceiptStatus(Enum):
    """The outcome of a sent line; LOST if the connection closed before the server answered."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of a sent line, with the server's `reason` for a refusal and our `nick` then."""

    status: ReceiptStatus
    reason: str = ""
    nick: str = ""


ACCEPTED, LOST = Receipt(ReceiptStatus.ACCEPTED), Receipt(ReceiptStatus.LOST)
