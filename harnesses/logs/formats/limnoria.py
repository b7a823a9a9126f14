"""Limnoria's ChannelLogger: `2024-01-02T12:34:56  *** nick <user@host> has joined #channel`."""

from __future__ import annotations

from harnesses.logs.formats.grammar import CHANNEL, CLOCK, DATE, MASK, NICK, Format, kind, reader
from storage.chat_log.event import EventType

_WHO = rf"\*\*\* (?P<nick>\S+)(?: <{MASK}>)?"
_REASON = r"(?: \((?P<text>.*)\))?"

LIMNORIA = Format(
    "limnoria",
    reader(
        rf"\[?{DATE}T{CLOCK}(?P<utc>Z)?\]? +",
        [
            kind(EventType.PRIVMSG, rf"<{NICK}> ?(?P<text>.*)"),
            kind(EventType.JOIN, rf"{_WHO} has joined {CHANNEL}"),
            kind(EventType.PART, rf"{_WHO} has left {CHANNEL}{_REASON}"),
            kind(EventType.QUIT, rf"{_WHO} has quit(?: IRC)?{_REASON}"),
            kind(EventType.NICK, r"\*\*\* (?P<nick>\S+) is now known as (?P<target>\S+)"),
            kind(
                EventType.KICK,
                rf"\*\*\* (?P<target>\S+) was kicked by (?P<nick>\S+){_REASON}",
            ),
            kind(EventType.TOPIC, r'\*\*\* (?P<nick>\S+) changes topic to "(?P<text>.*)"'),
            kind(EventType.MODE, r"\*\*\* (?P<nick>\S+) sets mode: (?P<text>.*)"),
            kind(EventType.ACTION, r"\* (?P<nick>[^\s*]\S*) ?(?P<text>.*)"),
            kind(EventType.NOTICE, r"-(?P<nick>[^\s-]\S*?)- (?P<text>.*)"),
        ],
    ),
)
