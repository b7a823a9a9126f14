"""EnergyMech, and ZNC, whose log module writes the same: `[12:34:56] *** Joins: nick (u@h)`."""

from __future__ import annotations

from harnesses.logs.formats.grammar import CHANNEL, CLOCK, DATE, MASK, NICK, Format, kind, reader
from storage.chat_log.event import EventType

_REASON = r"(?: \((?P<text>.*)\))?"

ENERGYMECH = Format(
    "energymech",
    reader(
        rf"\[(?:{DATE}[ T])?{CLOCK}\] ",
        [
            kind(EventType.PRIVMSG, rf"<{NICK}> ?(?P<text>.*)"),
            kind(EventType.JOIN, rf"\*\*\* Joins: (?P<nick>\S+) \({MASK}\)"),
            kind(EventType.PART, rf"\*\*\* Parts: (?P<nick>\S+) \({MASK}\){_REASON}"),
            kind(EventType.QUIT, rf"\*\*\* Quits: (?P<nick>\S+) \({MASK}\){_REASON}"),
            kind(EventType.NICK, r"\*\*\* (?P<nick>\S+) is now known as (?P<target>\S+)"),
            kind(
                EventType.KICK,
                rf"\*\*\* (?P<target>\S+) was kicked by (?P<nick>\S+){_REASON}",
            ),
            kind(
                EventType.TOPIC,
                rf"\*\*\* (?P<nick>\S+) changes topic (?:of {CHANNEL} )?to '(?P<text>.*)'",
            ),
            kind(EventType.MODE, r"\*\*\* (?P<nick>\S+) sets mode: (?P<text>.*)"),
            kind(EventType.ACTION, r"\* (?P<nick>[^\s*]\S*) ?(?P<text>.*)"),
            kind(EventType.NOTICE, r"-(?P<nick>[^\s:]+?)(?:[:!]\S*)?- (?P<text>.*)"),
            kind(None, r"(?:Connected to|Disconnected from|Broadcast:|\*\*\* You).*"),
        ],
    ),
)
