"""The logs of #ubuntu as published: `[12:34] <nick> text`, and `===` lines without a time.

Their early years have a space after each bracket of a nick: `<bur[n] er>`.
"""

from __future__ import annotations

from harnesses.logs.formats.grammar import CHANNEL, CLOCK, MASK, Format, kind, reader
from storage.chat_log.event import EventType

_NICK = r"(?P<nick>(?:\[\S+\] )?\S+)"
_WHO = rf"=== {_NICK} +\[{MASK}\] +"

UBUNTU = Format(
    "ubuntu",
    reader(
        rf"\[{CLOCK}\] ",
        [
            kind(EventType.PRIVMSG, r"<(?P<nick>[^<>]{1,64})> ?(?P<text>.*)"),
            kind(EventType.ACTION, r" \* (?P<nick>\S+) ?(?P<text>.*)"),
            kind(EventType.NOTICE, r"-(?P<nick>[^\s:]+):\S+- (?P<text>.*)"),
        ],
        untimed=[
            kind(EventType.JOIN, rf"{_WHO}has joined {CHANNEL}"),
            kind(EventType.PART, rf"{_WHO}has left {CHANNEL} *(?:\[(?P<text>.*)\])? *"),
            kind(EventType.QUIT, rf"{_WHO}has quit *(?:\[(?P<text>.*)\])? *"),
            kind(EventType.NICK, rf"=== {_NICK} is now known as (?P<target>\S+)"),
            kind(EventType.MODE, rf"=== mode/{CHANNEL} \[(?P<text>[^\]]*)\] +by (?P<nick>\S+)"),
            kind(
                EventType.KICK,
                rf"=== (?P<target>\S+) was kicked off {CHANNEL} by (?P<nick>\S+)"
                r"(?: \((?P<text>.*)\))?",
            ),
            kind(
                EventType.TOPIC,
                rf"=== (?P<nick>\S+) changed the topic of {CHANNEL} to:? (?P<text>.*)",
            ),
            kind(
                EventType.TOPIC,
                r"=== \.\.\[topic/(?P<channel>[^\s:]+):(?P<nick>[^\]]+)\] : (?P<text>.*)",
            ),
            kind(None, r"=== (?:Topic|Users|#\S+ ).*"),
            kind(EventType.ACTION, r"=== (?P<nick>[^\s\[]\S*) (?P<text>.*)"),
        ],
    ),
)
