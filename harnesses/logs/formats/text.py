"""The text of our own export: a day of a channel as EnergyMech and ZNC write it, times in UTC."""

from __future__ import annotations

from storage.chat_log.event import Event, EventType, event_line


def text_line(event: Event) -> str:
    """Return the line of an event, without line end; on one line whatever people wrote."""
    return " ".join(f"[{event.time:%H:%M:%S}] {_format_event(event)}".splitlines())


def _format_event(event: Event) -> str:
    nick, text = event.nick, event.text
    mask = f"{event.user}@{event.host}"
    match event.type:  # these as EnergyMech has them, so that `logs import` reads them again
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
