"""WeeChat: date and time, prefix and message with tabs between them."""

from __future__ import annotations

from harnesses.logs.formats.grammar import CHANNEL, CLOCK, DATE, MASK, Format, kind, reader
from storage.chat_log.event import EventType

_WHO = rf"(?P<nick>\S+)(?: \([^()\t]*\))? \({MASK}\)"  # a real name may stand before the mask
_REASON = r"(?: \((?P<text>.*)\))?"

WEECHAT = Format(
    "weechat",
    reader(
        rf"{DATE}[ T]{CLOCK}(?P<utc>Z)?\t",
        [
            kind(EventType.JOIN, rf"-->\t{_WHO} has joined {CHANNEL}"),
            kind(EventType.PART, rf"<--\t{_WHO} has left {CHANNEL}{_REASON}"),
            kind(EventType.QUIT, rf"<--\t{_WHO} has quit{_REASON}"),
            kind(EventType.KICK, rf"<--\t(?P<nick>\S+) has kicked (?P<target>\S+){_REASON}"),
            kind(EventType.NICK, r"--\t(?P<nick>\S+) is now known as (?P<target>\S+)"),
            kind(EventType.MODE, rf"--\tMode {CHANNEL} \[(?P<text>[^\]]*)\] by (?P<nick>\S+)"),
            kind(
                EventType.TOPIC,
                rf"--\t(?P<nick>\S+) has changed topic for {CHANNEL}"
                r'(?: from ".*?")? to "(?P<text>.*)"',
            ),
            kind(EventType.TOPIC, rf"--\t(?P<nick>\S+) has unset topic for {CHANNEL}.*"),
            kind(EventType.NOTICE, r"--\tNotice\((?P<nick>[^\s)]+)\)(?: -> \S+)?: (?P<text>.*)"),
            kind(EventType.ACTION, r" \*\t(?P<nick>\S+) ?(?P<text>.*)"),
            kind(None, r"(?:--|-->|<--|=!=|\s*)\t.*"),
            kind(EventType.PRIVMSG, r"[~&@%+!]?(?P<nick>[^\s]+)\t(?P<text>.*)"),
        ],
    ),
)
