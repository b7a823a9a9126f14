"""What a line asks of us: a command, a question, or nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMAND = re.compile(r"(?P<name>[a-zA-Z]+)(?:\s+(?P<words>.*))?", re.DOTALL)
_OWN_DATA = re.compile(
    r"(?P<name>forget(?= me)|nolog)(?P<words>(?<=forget) me(?: [0-9a-f]{6})?|(?<=nolog) off)?",
    re.IGNORECASE,
)
ASK = "terrarium"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A command by name, and the words after it."""

    command: str
    words: str


def trigger(text: str, *, prefix: str, nick: str, private: bool) -> Trigger | None:
    """What `text` asks: `.command words`, `nick: words`, and in a private message anything."""
    said = text.strip()
    if said.startswith(prefix) and (match := _COMMAND.fullmatch(said, len(prefix))):
        return Trigger(match["name"].lower(), (match["words"] or "").strip())
    if match := re.match(rf"@?{re.escape(nick)}\s*[:,]\s*(?P<words>.*)", said, re.I | re.DOTALL):
        return _asked(match["words"].strip())
    return _asked(said) if private and said else None


def _asked(words: str) -> Trigger:
    """A question, or a command about one's own data: those are not logged, in whichever form."""
    if match := _OWN_DATA.fullmatch(words):
        return Trigger(match["name"].lower(), (match["words"] or "").strip())
    return Trigger(ASK, words)
