"""The text of our own export: a day of a channel as EnergyMech and ZNC write it, times in UTC."""

from __future__ import annotations

from storage.chat_log.event import Event, EventType


def text_line(event: Event) -> str:
    """The line of an event, without line end; on one line whatever people wrote."""
    return " ".join(f"[{event.time:%H:%M:%S}] {_render_line(event)}".splitlines())


def _render_line(event: Event) -> str:
    nick, text, target = event.nick, event.text, event.target
    mask = f"{event.user}@{event.host}"
    match event.type:
        case EventType.PRIVMSG:
            return f"<{nick}> {text}"
        case EventType.NOTICE:
            return f"-{nick}- {text}"
        case EventType.ACTION:
            return f"* {nick} {text}"
        case EventType.JOIN:
            return f"*** Joins: {nick} ({mask})"
        case EventType.PART:
            return f"*** Parts: {nick} ({mask}) ({text})"
        case EventType.QUIT:
            return f"*** Quits: {nick} ({mask}) ({text})"
        case EventType.NICK:
            return f"*** {nick} is now known as {target}"
        case EventType.KICK:
            return f"*** {target} was kicked by {nick} ({text})"
        case EventType.MODE:
            return f"*** {nick} sets mode: {text}"
        case EventType.TOPIC:
            return f"*** {nick} changes topic to '{text}'"
