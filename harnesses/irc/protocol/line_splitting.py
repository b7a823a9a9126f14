"""Split a text into lines that every reader of the channel gets whole.

A server puts our own `:nick!user@host ` in front of what we send and cuts at its line length, so
the space for a text is counted in bytes from what the others will receive. A line never ends
within a grapheme cluster. The rules of Unicode Standard Annex 29 that matter in chat are used:
marks, joined emoji, skin tones, flags, Hangul; Python's own tables suffice for them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from harnesses.irc.protocol.isupport import ISupport
from harnesses.irc.protocol.message import Source

LEAST = 4
"""The smallest budget in bytes: one character of UTF-8."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"[ \t]*[^ \t]+")
_ACTION = len("\x01ACTION \x01")


def budget(isupport: ISupport, source: Source, command: str, target: str) -> int:
    """Bytes of text that fit on one line of `command` (PRIVMSG, NOTICE or ACTION) to `target`.

    `source` is who we are; an unknown user or host counts as the longest the server allows.
    """
    nick = max(len(source.nick.encode()), 1)
    user = len(source.user.encode()) if source.user else isupport.userlen
    host = len(source.host.encode()) if source.host else isupport.hostlen
    wire = "PRIVMSG" if command == "ACTION" else command
    taken = len(":!@ ") + nick + user + host + len(f"{wire} {target} :".encode()) + len("\r\n")
    return max(isupport.linelen - taken - (_ACTION if command == "ACTION" else 0), LEAST)


def split(text: str, budget_bytes: int) -> list[str]:
    """Lines of at most `budget_bytes` of UTF-8 each, in order.

    Line breaks in `text` are kept as line ends, blank lines are left out. A line too long is cut
    between words, where the white space of the cut goes; a word too long is cut between grapheme
    clusters. NUL, which IRC cannot carry, is left out; a lone surrogate becomes `?`.
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
        if line:
            yield line
        *full, line = _pieces(word.lstrip(" \t"), budget_bytes)
        yield from full
    yield line


def _pieces(word: str, budget_bytes: int) -> Iterator[str]:
    piece = ""
    for cluster in clusters(word):
        # A cluster of any length is possible (stacked marks): then its characters are the pieces.
        for part in [cluster] if _size(cluster) <= budget_bytes else cluster:
            if piece and _size(piece + part) > budget_bytes:
                yield piece
                piece = ""
            piece += part
    yield piece


def _size(text: str) -> int:
    return len(text.encode())


_JOINER = "\u200d"


def clusters(text: str) -> Iterator[str]:
    """Yield the grapheme clusters of `text`; joined they are `text` again."""
    start = flags = 0
    for index in range(1, len(text)):
        before, after = text[index - 1], text[index]
        flags = flags + 1 if _is_flag(before) else 0
        if not _sticks(before, after, flags):
            yield text[start:index]
            start = index
    if text:
        yield text[start:]


def _sticks(before: str, after: str, flags: int) -> bool:
    if after < "\u0300":
        return False  # all of ASCII and Latin-1, quickly; our texts have no CRLF
    return (
        _extends(after)
        or (before == _JOINER and unicodedata.category(after) == "So")
        or (_is_flag(after) and flags % 2 == 1)
        or _is_hangul_syllable(before, after)
    )


def _extends(character: str) -> bool:
    return (
        unicodedata.category(character) in ("Mn", "Me", "Mc")
        or character == _JOINER
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= character <= "\U000e007f"  # tags of subdivision flags
    )


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _is_hangul_syllable(before: str, after: str) -> bool:
    leading = "\u1100" <= before <= "\u115f"
    vowel = "\u1160" <= before <= "\u11a7" or _has_no_final(before)
    final = "\u11a8" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3"
    if "\u1160" <= after <= "\u11a7":
        return leading or vowel
    if "\u11a8" <= after <= "\u11ff":
        return vowel or final
    return leading and ("\u1100" <= after <= "\u115f" or "\uac00" <= after <= "\ud7a3")


def _has_no_final(character: str) -> bool:
    return "\uac00" <= character <= "\ud7a3" and (ord(character) - 0xAC00) % 28 == 0
