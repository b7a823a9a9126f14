"""irssi: `12:34 <@nick> text`, `12:34 -!- nick [user@host] has joined #channel`."""

from __future__ import annotations

from harnesses.logs.formats.grammar import CHANNEL, CLOCK, DATE, MASK, NICK, Format, kind, reader
from storage.chat_log.event import EventType

_REASON = r"(?: \[(?P<text>.*)\])?"

IRSSI = Format(
    "irssi",
    reader(
        rf"(?:{DATE}[ T])?{CLOCK} ",
        [
            kind(EventType.PRIVMSG, rf"<{NICK}> ?(?P<text>.*)"),
            kind(EventType.JOIN, rf"-!- (?P<nick>\S+) \[{MASK}\] has joined {CHANNEL}"),
            kind(EventType.PART, rf"-!- (?P<nick>\S+) \[{MASK}\] has left {CHANNEL}{_REASON}"),
            kind(EventType.QUIT, rf"-!- (?P<nick>\S+) \[{MASK}\] has quit{_REASON}"),
            kind(EventType.NICK, r"-!- (?P<nick>\S+) is now known as (?P<target>\S+)"),
            kind(
                EventType.KICK,
                rf"-!- (?P<target>\S+) was kicked from {CHANNEL} by (?P<nick>\S+){_REASON}",
            ),
            kind(
                EventType.MODE,
                rf"-!- (?:Server)?[mM]ode/{CHANNEL} \[(?P<text>[^\]]*)\] by (?P<nick>\S+)",
            ),
            kind(
                EventType.TOPIC,
                rf"-!- (?P<nick>\S+) changed the topic of {CHANNEL} to: (?P<text>.*)",
            ),
            kind(EventType.TOPIC, rf"-!- Topic unset by (?P<nick>\S+) on {CHANNEL}"),
            kind(EventType.ACTION, r" ?\* (?P<nick>\S+) ?(?P<text>.*)"),
            kind(EventType.NOTICE, r"-(?P<nick>[^\s!:(]+)(?:[:(][^\s-]*)?- (?P<text>.*)"),
            kind(
                None,
                r"-!- (?:You're now known as|Irssi:|Netsplit|Topic|Home page|Channel |\[|Keepalive"
                r"|[#&!+]\S+: |[#&!+]\S+ +$|There are |Mode |mode/\S+ \[.*\]$).*",
            ),
        ],
        days="--- (?:Log opened|Day changed) ",
        untimed=[kind(None, "--- Log closed .*")],
    ),
)
