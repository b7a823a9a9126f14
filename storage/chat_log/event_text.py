"""Events as text, in the form in which IRC logs have them."""

from __future__ import annotations

import re

from storage.chat_log.event import Event, EventType

_MASK = re.compile(r"(?P<nick>[^\s!@]*)(?P<bang>!?)[^\s@]*@\S+")  # nick!user@host, or user@host


def public_text(event: Event) -> str:
    """Return the text of an event as it may be published: user names and hosts, which can identify
    people, are left out of the masks of bans."""
    if event.type is not EventType.MODE:
        return event.text
    return _MASK.sub(lambda mask: f"{mask['nick'] if mask['bang'] else '*'}!*@*", event.text)


def event_line(event: Event) -> str:
    """Return an event as a line without its time: `<nick> text`, `* nick text`, `*** nick left`.

    What people wrote stands in it as it is, also line breaks and control characters.
    """
    match event.type:
        case EventType.PRIVMSG:
            return f"<{event.nick}> {event.text}"
        case EventType.NOTICE:
            return f"-{event.nick}- {event.text}"
        case EventType.ACTION:
            return f"* {event.nick} {event.text}"
    return f"*** {event.nick} {describe_event(event)}"


def describe_event(event: Event) -> str:
    """Return what the nick of an event did, in words, without the nick; of speech, its text."""
    text, target = event.text, event.target
    reason = f" ({text})" if text else ""
    match event.type:
        case EventType.JOIN:
            return "joined"
        case EventType.PART:
            return f"left{reason}"
        case EventType.QUIT:
            return f"quit{reason}"
        case EventType.NICK:
            return f"is now known as {target}"
        case EventType.KICK:
            return f"kicked {target}{reason}"
        case EventType.MODE:
            return f"set mode {public_text(event)}"
        case EventType.TOPIC:
            return f"set the topic: {text}" if text else "cleared the topic"
    return text
