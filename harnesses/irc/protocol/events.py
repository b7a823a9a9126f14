"""Events of a network, as the tendril and its log see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

EventType = Literal[
    "PRIVMSG",
    "NOTICE",
    "ACTION",
    "JOIN",
    "PART",
    "QUIT",
    "NICK",
    "KICK",
    "MODE",
    "TOPIC",
    "INVITE",
]


@dataclass(frozen=True, slots=True)
class IrcEvent:
    """One thing to log, and perhaps to answer.

    A QUIT and a NICK come once for each channel that we share with the person, so that each
    channel's log has them. An INVITE of us is told only where we do not want to be anyway; it is
    not for the log.
    """

    network: str
    type: EventType
    channel: str | None
    """The channel, spelled as the server spells it; None for a private message."""
    target: str
    """Whom it is addressed to: the channel (with STATUSMSG symbols, `@#c`), our own nick in a
    private message, the person kicked in a KICK."""
    nick: str
    """The nick of the person who did it; a server's name for the server itself."""
    user: str | None
    host: str | None
    account: str | None
    """The services account, where the server tells it."""
    text: str
    """The text, with line breaks where it is one message of several lines; the reason of
    PART, QUIT, KICK; the new nick; the modes; the new topic."""
    time: datetime
    """Aware, UTC: the server's time where it gives one that can be believed, else the time of
    receipt."""
    msgid: str | None
    own: bool
    """True when we did it ourselves."""
    batch_type: str | None
    """The IRCv3 batch it is part of: `chathistory` and `playback` are lines of the past."""
    bot: bool = False
    """True when the server says that who did it is a bot."""
