"""The text format of our own export: lines as EnergyMech and ZNC write them, with times in UTC."""

from __future__ import annotations

from storage.chat_log.event import Event, EventType, event_line


def text_line(event: Event) -> str:
    """Return an event as one line of text, without line end."""
    # A line break in what somebody wrote would let them forge a line of somebody else.
    return " ".join(f"[{event.time:%H:%M:%S}] {_format_event(event)}".splitlines())


def _format_event(event: Event) -> str:
    nick, text = event.nick, event.text
    mask = f"{event.user}@{event.host}"
    match event.type:  # as in EnergyMech, so that `logs import` can read them
        case EventType.JOIN:
            return f"*** Joins: {nick} ({mask})"
        case EventType.PART:
            return f"*** Parts: {nick} ({mask}) ({text})"
        case EventType.QUIT:
            return f"*** Quits: {nick} ({mask}) ({text})"
        case EventType.KICK:
            return f"*** {event.target} was kicked by {nick} ({text})"
        case EventType.MODE:
            return f"*** {nick} sets mode: {text}"
        case EventType.TOPIC:
            return f"*** {nick} changes topic to '{text}'"
    return event_line(event)
