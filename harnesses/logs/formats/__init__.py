"""The known log formats, by name, and their detection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harnesses.logs.formats.eggdrop import EGGDROP
from harnesses.logs.formats.energymech import ENERGYMECH
from harnesses.logs.formats.grammar import Format, ParsedLine, Refused
from harnesses.logs.formats.hexchat import HEXCHAT
from harnesses.logs.formats.irssi import IRSSI
from harnesses.logs.formats.jsonl import JSONL
from harnesses.logs.formats.limnoria import LIMNORIA
from harnesses.logs.formats.ubuntu import UBUNTU
from harnesses.logs.formats.weechat import WEECHAT
from storage.chat_log.event import Event

# Of the formats that parse a file equally well the first wins: several share `[12:34] <nick> text`.
_ALL = (WEECHAT, LIMNORIA, HEXCHAT, IRSSI, ENERGYMECH, EGGDROP, UBUNTU, JSONL)
FORMATS: Mapping[str, Format] = {each.name: each for each in _ALL} | {"znc": ENERGYMECH}


def detect(lines: Sequence[str]) -> Format | None:
    """Return the format that parses most events of `lines`, None if none parses any."""
    scores = {each.name: _score(each, lines) for each in _ALL}
    best = max(scores, key=lambda name: scores[name])
    return FORMATS[best] if scores[best][0] else None


def _score(format: Format, lines: Sequence[str]) -> tuple[int, int]:
    """Count the events, and the lines of any kind, that a format parses."""
    parsed = [format.parse(line) for line in lines]
    events = sum(isinstance(each, ParsedLine | Refused | Event) for each in parsed)
    return events, sum(each is not None for each in parsed)
