"""eggdrop: `[12:34] Action: nick text`, `[12:34] nick (user@host) joined #channel.`"""

from __future__ import annotations

from harnesses.logs.formats.grammar import CHANNEL, CLOCK, MASK, NICK, Format, kind, reader
from storage.chat_log.event import EventType

_WHO = rf"(?P<nick>\S+) \({MASK}\)"
_BY = r"(?P<nick>[^\s!]+)(?:!(?P<user>[^\s@]*)@(?P<host>\S*?))?"

EGGDROP = Format(
    "eggdrop",
    reader(
        rf"\[{CLOCK}\] ",
        [
            kind(EventType.PRIVMSG, rf"<{NICK}> ?(?P<text>.*)"),
            kind(EventType.ACTION, r"Action: (?P<nick>\S+) ?(?P<text>.*)"),
            kind(EventType.JOIN, rf"{_WHO} (?:re)?joined {CHANNEL}\."),
            kind(
                EventType.PART,
                rf"{_WHO} left (?P<channel>[#&!+][^\s,]*?)(?: \((?P<text>.*)\))?\.",
            ),
            kind(EventType.QUIT, rf"{_WHO} left irc(?:: (?P<text>.*))?"),
            kind(EventType.QUIT, rf"{_WHO} (?P<text>got netsplit)\."),
            kind(EventType.JOIN, rf"{_WHO} returned to {CHANNEL}\."),
            kind(EventType.NICK, r"Nick change: (?P<nick>\S+) -> (?P<target>\S+)"),
            kind(
                EventType.KICK,
                rf"(?P<target>\S+) kicked from {CHANNEL} by {_BY}(?:: (?P<text>.*))?",
            ),
            kind(EventType.MODE, rf"{CHANNEL}: mode change '(?P<text>[^']*)' by {_BY}"),
            kind(EventType.TOPIC, rf"Topic changed on {CHANNEL} by {_BY}: (?P<text>.*)"),
            kind(EventType.NOTICE, r"-(?P<nick>[^\s:]+)(?::\S*)?- (?P<text>.*)"),
            kind(EventType.NOTICE, rf"-(?P<nick>\S+) \({MASK}\)- (?P<text>.*)"),
            kind(None, r".* got lost in the net-split\."),
        ],
        days=r"\[\d\d:\d\d(?::\d\d)?\] --- [A-Z][a-z]{2} [A-Z][a-z]{2} ",
    ),
)
