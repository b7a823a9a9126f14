"""HexChat and XChat: `Jan 02 12:34:56 <nick>\\ttext`; the year is in the line that begins a log.

Actions look like status messages (`*\\tnick has quit (why)`): a line that fits a status message is
parsed as one.
"""

from __future__ import annotations

from harnesses.logs.formats.grammar import CHANNEL, CLOCK, MASK, NICK, Format, kind, reader
from storage.chat_log.event import EventType

_WHO = rf"\*\s(?P<nick>\S+) \({MASK}\)"
_REASON = r"(?: \((?P<text>.*)\))?"
_MODES = {
    "gives channel operator status to": "+o",
    "removes channel operator status from": "-o",
    "gives voice to": "+v",
    "removes voice from": "-v",
}

HEXCHAT = Format(
    "hexchat",
    reader(
        rf"(?P<month>[A-Z][a-z]{{2}}) (?P<day>\d\d) {CLOCK} ",
        [
            kind(EventType.PRIVMSG, rf"<{NICK}>(?:\t| )?(?P<text>.*)"),
            kind(EventType.JOIN, rf"{_WHO} has joined(?: {CHANNEL})?"),
            kind(EventType.PART, rf"{_WHO} has left {CHANNEL}{_REASON}"),
            kind(EventType.QUIT, rf"\*\s(?P<nick>\S+) has quit{_REASON}"),
            kind(EventType.NICK, r"\*\s(?P<nick>\S+) is now known as (?P<target>\S+)"),
            kind(
                EventType.KICK,
                rf"\*\s(?P<nick>\S+) has kicked (?P<target>\S+) from {CHANNEL}{_REASON}",
            ),
            kind(EventType.TOPIC, r"\*\s(?P<nick>\S+) has changed the topic to: (?P<text>.*)"),
            kind(EventType.MODE, r"\*\s(?P<nick>\S+) sets modes? (?P<text>[+-]\S.*)"),
            kind(
                EventType.MODE,
                rf"\*\s(?P<nick>\S+) (?P<text>(?:{'|'.join(_MODES)}) \S+)",
            ),
            kind(EventType.NOTICE, r"-(?P<nick>[^\s/]+)(?:/\S*)?-(?:\t| )(?P<text>.*)"),
            kind(
                None,
                r"\*\s(?:Now talking on|Topic for|Topic of|Channel|You are now known as|You have"
                r"|Disconnected|Looking up|Connecting|Connected|Cannot join|[#&!+]\S+ :?).*",
            ),
            kind(EventType.ACTION, r"\*\s(?P<nick>\S+) ?(?P<text>.*)"),
        ],
        days=r"\*{4} BEGIN LOGGING AT ",
        untimed=[kind(None, r"\*{4} ENDING LOGGING AT .*")],
    ),
)
