"""Split a text into lines that every reader of the channel gets whole.

A server puts our own `:nick!user@host ` in front of what we send and cuts at its line length, so
the space for a text is counted in bytes from what the others will receive. A line never ends
within a grapheme cluster: what a reader sees as one character, such as joined emoji or a flag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import regex

from harnesses.irc.protocol.isupport import ISupport
from harnesses.irc.protocol.message import Source

LEAST = 4
"""The smallest budget in bytes: one character of UTF-8."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"[ \t]*[^ \t]+")
_CLUSTER = regex.compile(r"\X")  # an extended grapheme cluster of Unicode Standard Annex 29
_MOSTLY_EMPTY = 3  # a line of less than a third of its space is filled rather than left so
_LEAST_PIECE = 40  # bytes of space that are worth the beginning of a word
_ACTION = len("\x01ACTION \x01")


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
    return max(isupport.linelen - taken - (_ACTION if command == "ACTION" else 0), LEAST)


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
