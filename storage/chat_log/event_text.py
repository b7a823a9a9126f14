"""Events as text, in the form in which IRC logs have them."""

from __future__ import annotations

from storage.chat_log.event import Event, EventType


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
            return f"set mode {text}"
        case EventType.TOPIC:
            return f"set the topic: {text}" if text else "cleared the topic"
    return text
