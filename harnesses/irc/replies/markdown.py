"""Markdown of the model as plain lines for IRC, where nothing renders it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

_FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)")
_HEADING = re.compile(r"#{1,6}\s+(?P<text>\S.*)")
_RULE = re.compile(r"-{3,}|\*{3,}|_{3,}|\|[|:-]+")  # also the line below the head of a table
_BOLD = re.compile(r"(?<![\w*])\*\*(?P<text>(?=[^\s*])[^*\n]*[^\s*])\*\*(?![\w*])")
_LINK = re.compile(r"!?\[(?P<text>[^\[\]\n]*)\]\((?P<url>https?://[^\s()]+)\)")
_OPEN = re.compile(r"\*\*|\[|```|~~~")


def plain_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a text as they are shown on IRC, and whether each is code.

    Bold, headings and links are written out, fences and rules left out. `*this*` and backticks
    stay: people on IRC write them too, and they say where a command ends. Code stays as it is.
    """
    fence = ""
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        if match and (
            not fence or (match["fence"].startswith(fence) and not match["info"].strip())
        ):
            fence = "" if fence else match["fence"]
        elif fence:
            yield line, True
        elif not _RULE.fullmatch("".join(line.split())):
            heading = _HEADING.fullmatch(line)
            shown = _LINK.sub(_write_out, heading["text"] if heading else line)
            yield _BOLD.sub(r"\g<text>", shown), False


def to_plain(text: str) -> str:
    """Return a text as it is shown on IRC."""
    return "\n".join(line for line, _ in plain_lines(text))


def prose(text: str) -> tuple[str, str]:
    """Return the part of a text before the first code, and that after it up to the next, as they
    are shown on IRC."""
    parts = [
        (is_code, "\n".join(line for line, _ in group))
        for is_code, group in groupby(plain_lines(text), key=itemgetter(1))
    ]
    before = parts.pop(0)[1] if parts and not parts[0][0] else ""
    return before, parts[1][1] if parts[1:] else ""


def may_change(line: str) -> bool:
    """Return whether more text may change how a line, the beginning of a longer one, is shown."""
    return _OPEN.search(line) is not None


def _write_out(match: re.Match[str]) -> str:
    text, url = match["text"], match["url"]
    return url if text in ("", url) else f"{text} ({url})"
