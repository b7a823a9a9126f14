"""Events of a network, as the tendril and its log see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Talk = Literal["PRIVMSG", "NOTICE", "ACTION"]
"""The kind of a message; an ACTION is a PRIVMSG with CTCP framing."""

EventType = (
    Talk | Literal["JOIN", "PART", "QUIT", "NICK", "KICK", "MODE", "TOPIC", "INVITE", "REDACT"]
)


@dataclass(frozen=True, slots=True)
class IrcEvent:
    """An event on a network, to be logged and perhaps answered.

    QUIT and NICK yield one event for each channel that we share with the person, so that every
    channel's log has it. INVITE is an event only when we are invited to a channel that is not
    configured. It is not logged, nor is a REDACT, whose text is the msgid of the line to remove.
    """

    network: str
    type: EventType
    channel: str | None
    """The channel, in the server's spelling; None for a private message."""
    target: str
    """The channel (with STATUSMSG symbols, as in `@#c`), the recipient of a private message, or
    the nick removed by a KICK."""
    nick: str
    """The nick of the sender, or a server name."""
    user: str | None
    host: str | None
    account: str | None
    """The sender's services account, if the server discloses it."""
    text: str
    """The text (with line breaks if it is a multiline message), the reason of PART, QUIT or KICK,
    the new nick, the mode changes, or the new topic."""
    time: datetime
    """Aware, UTC: the server-time tag if it is plausible, else the time of receipt."""
    msgid: str | None
    own: bool
    """True if we are the sender."""
    batch_type: str | None
    """The type of the enclosing IRCv3 batch; `chathistory` and `playback` mark old lines."""
    bot: bool = False
    """True if the server marks the sender as a bot."""
